-- uncancel: take back that jobs, or batches, were cancelled: they are about to be started again by hand
-- KEYS queues
-- ARGV (member)*
-- returns those that were marked. The counter rises, so that workers read the log; one that has not yet asks
--   when it settles (settle.lua). Of an iterable job the flag goes too, and where it stands stays.
-- include keys
-- include cancel_log
local found = {}
for _, member in ipairs(ARGV) do
  local state = key('iteration') .. member
  local marked = redis.call('ZREM', key('cancelled'), member) == 1
  if redis.pcall('HDEL', state, 'cancelled') == 1 then
    marked = true
    if redis.call('HLEN', state) == 1 and redis.call('HGET', state, 'c') == 'null' then
      redis.call('UNLINK', state)  -- cancel.lua had written both, and no run anything
    end
  end
  if marked then
    found[#found + 1] = member
    log_cancel('-' .. member)
  end
end
return found
