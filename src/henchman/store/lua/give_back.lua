-- give_back: move payloads from an in-flight list to the right end of its queue, so that the oldest is next to run
-- KEYS flight queue queues
-- ARGV most name
-- returns how many were moved; call again until it is less than most. A pop comes first: a full server accepts it.
--   One step is a removal and a push in the same script; nothing can fall between. A push that is refused (the key
--   of the queue holds something else) ends it with that error, and the payload is where it was.
local most, moved = tonumber(ARGV[1]), 0
while moved < most do
  local payload = redis.call('LPOP', KEYS[1])
  if not payload then
    break
  end
  local pushed = redis.pcall('RPUSH', KEYS[2], payload)
  if type(pushed) == 'table' then
    redis.call('LPUSH', KEYS[1], payload)
    return pushed
  end
  moved = moved + 1
end
if moved > 0 then
  redis.call('SADD', KEYS[3], ARGV[2])
end
return moved
