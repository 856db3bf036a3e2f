-- uncancel: take back that jobs, or batches, were cancelled: they are about to be started again by hand
-- KEYS cancelled cancels (iteration)*
-- ARGV (member)*
-- returns those that were marked. The counter rises, so that workers read the list anew; one that has not yet asks
--   when it settles (settle.lua). Of an iterable job the flag goes too, and where it stands stays.
local found = {}
for place, member in ipairs(ARGV) do
  local state = KEYS[place + 2]
  local marked = redis.call('ZREM', KEYS[1], member) == 1
  if redis.pcall('HDEL', state, 'cancelled') == 1 then
    marked = true
    if redis.call('HLEN', state) == 1 and redis.call('HGET', state, 'c') == 'null' then
      redis.call('UNLINK', state)  -- cancel.lua had written both, and no run anything
    end
  end
  if marked then
    found[#found + 1] = member
  end
end
if #found > 0 then
  redis.call('INCR', KEYS[2])
end
return found
