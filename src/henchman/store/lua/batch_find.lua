-- batch_find: which payloads of one stretch of a list are of a batch
-- KEYS source
-- ARGV batch first most
-- returns {how many were looked at, payload…}; the list is read from its left end on, where what is pushed meanwhile
--   makes that something is seen twice, and nothing that is passed over.
local wanted, answer = '"batch":"' .. ARGV[1] .. '"', {0}
local rows = redis.call('LRANGE', KEYS[1], ARGV[2], ARGV[2] + ARGV[3] - 1)
for _, payload in ipairs(rows) do
  if string.find(payload, wanted, 1, true) then
    answer[#answer + 1] = payload
  end
end
answer[1] = #rows
return answer
