-- give_back: move payloads from an in-flight list to the right end of its queue, so that the oldest is next to run
-- KEYS queues flight queue
-- ARGV most name
-- returns how many were moved, at most as many as have 4 MB; call again until there are none. A pop comes first: a full
--   server accepts it. One step is a removal and a push in the same script; nothing can fall between. A push that is
--   refused (the key of the queue holds something else) ends it with that error, and the payload is where it was.
-- include keys
-- include bytes
-- include came_back
local most, moved, size = tonumber(ARGV[1]), 0, 0
while moved < most and size < MOST_BYTES do
  local payload = redis.call('LPOP', KEYS[2])
  if not payload then
    break
  end
  local pushed = redis.pcall('RPUSH', KEYS[3], payload)
  if type(pushed) == 'table' then
    redis.call('LPUSH', KEYS[2], payload)
    return pushed
  end
  moved, size = moved + 1, size + #payload
end
if moved > 0 then
  redis.call('SADD', KEYS[1], ARGV[2])
  came_back(ARGV[2], moved)
end
return moved
