-- The names of all lists in which plain jobs wait: queues, and up to ten thousand lines of each level of a fair one.
-- include line_name
local function every_queue()
  local names = redis.call('SMEMBERS', KEYS[1])
  for _, queue in ipairs(redis.call('SMEMBERS', key('fair_queues'))) do
    for _, level in ipairs({'high', 'normal', 'low'}) do
      for _, tenant in ipairs(redis.call('ZRANGE', key('fair_turns') .. level .. ':' .. queue, 0, 9999)) do
        names[#names + 1] = line_name(queue, level, tenant)
      end
    end
  end
  return names
end
