-- bring_forward: move a payload to where its queue, or its line of a fair queue, is fetched from next
-- KEYS queue
-- ARGV payload
-- returns 1 it is the next one, 0 it was not there: nothing was done
local there = redis.call('LREM', KEYS[1], -1, ARGV[1])
if there == 1 then
  redis.call('RPUSH', KEYS[1], ARGV[1])
end
return there
