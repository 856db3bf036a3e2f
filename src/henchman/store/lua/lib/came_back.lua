-- Of a fair queue: so many jobs came back to the right end of its list, that were in their lines before (lib/lines.lua).
local function came_back(queue, count)
  if redis.call('SISMEMBER', key('fair_queues'), queue) == 1 then
    redis.call('HINCRBY', key('fair_facts') .. queue, 'back', count)
  end
end
