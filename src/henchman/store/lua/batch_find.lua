-- batch_find: which payloads of one stretch of a list are of a batch
-- KEYS source
-- ARGV batch first most
-- returns {how many were looked at, payload…}: at most as many as have 4 MB, 0 at the end; the list is read from its
--   left end on, where what is pushed meanwhile makes that something is seen twice, and nothing that is passed over.
-- include bytes
local wanted, answer = '"batch":"' .. ARGV[1] .. '"', {0}
local first, most, size, step = tonumber(ARGV[2]), tonumber(ARGV[3]), 0, 1
while answer[1] < most and size < MOST_BYTES do
  local rows = redis.call('LRANGE', KEYS[1], first + answer[1], first + answer[1] + step - 1)
  for _, payload in ipairs(rows) do
    size = size + #payload
    if string.find(payload, wanted, 1, true) then
      answer[#answer + 1] = payload
    end
  end
  answer[1] = answer[1] + #rows
  if #rows < step then
    break
  end
  step = math.min(most - answer[1], 2 * step, 16)
end
return answer
