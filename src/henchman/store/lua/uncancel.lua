-- uncancel: take back that jobs, or batches, were cancelled: they are about to be started again by hand
-- KEYS cancelled cancels cancel_log (iteration)*
-- ARGV (member)*
-- returns those that were marked. The counter rises, so that workers read the log; one that has not yet asks
--   when it settles (settle.lua). Of an iterable job the flag goes too, and where it stands stays.
-- include cancel_log
local found = {}
for place, member in ipairs(ARGV) do
  local state = KEYS[place + 3]
  local marked = redis.call('ZREM', KEYS[1], member) == 1
  if redis.pcall('HDEL', state, 'cancelled') == 1 then
    marked = true
    if redis.call('HLEN', state) == 1 and redis.call('HGET', state, 'c') == 'null' then
      redis.call('UNLINK', state)  -- cancel.lua had written both, and no run anything
    end
  end
  if marked then
    found[#found + 1] = member
    log_cancel(KEYS[2], KEYS[3], '-' .. member)
  end
end
return found
