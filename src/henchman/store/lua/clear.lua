-- clear: take payloads out of a queue for good, from its right end on, each with its effects
-- KEYS queue cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped (own)*
-- ARGV name most (payload effects)*
-- returns {how many were taken, payload…}: it stops at the first of those payloads, whose effects it must be told (see
--   lib/effects.lua); they are given back as arguments of the next call. A payload without "hm" has none. At most
--   most payloads, or 4 MB, are looked at, so that no call takes long. An empty queue's name is forgotten.
-- include now
-- include words
-- include batch
-- include effects
-- include bytes
local known = {}
for at = 3, #ARGV, 2 do
  known[ARGV[at]] = ARGV[at + 1]
end
local answer, ended, bytes = {0}, {}, 0
for place = 1, tonumber(ARGV[2]) do
  local payload = redis.call('LINDEX', KEYS[1], -place)
  if not payload then
    break
  end
  local effects = known[payload]
  if not effects and string.find(payload, '"hm"', 1, true) then
    answer[#answer + 1] = payload
  elseif #answer == 1 then
    answer[1] = place
    if effects and effects ~= '' then
      ended[#ended + 1] = payload
    end
  end
  bytes = bytes + #payload
  if bytes > MOST_BYTES then
    break
  end
end
if answer[1] > 0 then
  redis.call('LTRIM', KEYS[1], 0, -1 - answer[1])
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('SREM', KEYS[7], ARGV[1])
end
if #ended > 0 then
  local carry_out = carrying_out(2, 11)
  for _, payload in ipairs(ended) do
    carry_out(payload, 'deleted', known[payload])
  end
end
return answer
