-- clear: take payloads out of a queue for good, from its right end on, each with its effects
-- KEYS queues queue
-- ARGV name most (payload effects)*
-- returns {how many were taken, payload…}: it stops at the first of those payloads, whose effects it does not know (see
--   lib/effects.lua); the next call gives them as arguments. A payload without "hm" has none. At most
--   most payloads, or 4 MB, are looked at, so that no call takes long. An empty queue's name is forgotten.
-- include base
-- include keys
-- include effects
-- include bytes
-- include left_line
local QUEUE, known = KEYS[2], {}
for at = 3, #ARGV, 2 do
  known[ARGV[at]] = ARGV[at + 1]
end
local answer, ended, bytes = {0}, {}, 0
for place = 1, tonumber(ARGV[2]) do
  local payload = redis.call('LINDEX', QUEUE, -place)
  if not payload then
    break
  end
  local effects = known[payload]
  if not effects and string.find(payload, '"hm"', 1, true) then
    answer[#answer + 1] = payload
  elseif #answer == 1 then
    answer[1] = place
    if effects then
      ended[#ended + 1] = payload
    end
  end
  bytes = bytes + #payload
  if bytes > MOST_BYTES then
    break
  end
end
if answer[1] > 0 then
  redis.call('LTRIM', QUEUE, 0, -1 - answer[1])
  left_line(ARGV[1], answer[1])
end
if redis.call('EXISTS', QUEUE) == 0 then
  redis.call('SREM', KEYS[1], ARGV[1])
end
for _, payload in ipairs(ended) do
  carry_out(payload, 'deleted', known[payload])
end
finish_effects()
return answer
