-- blocked_page: a page of the parked jobs
-- KEYS queues
-- ARGV cursor most
-- returns {next cursor, {jid, row, {line…}}…}: lines are those that it still stands in, where it has several needs. About
--   most jobs, or as many as have 4 MB. As with any scan one may come twice; the cursor is 0 at the end.
-- include base
-- include keys
-- include needs
local cursor, most, answer, size = ARGV[1], tonumber(ARGV[2]), {'0'}, 0
repeat
  local page = redis.call('HSCAN', key('parked'), cursor, 'COUNT', math.min(most, AT_ONCE))
  cursor = page[1]
  for at = 1, #page[2], 2 do
    local several = key('needs') .. page[2][at]
    answer[#answer + 1] = {page[2][at], page[2][at + 1], redis.call('SMEMBERS', several)}
    size = size + #page[2][at + 1]
  end
until cursor == '0' or #answer > most or size >= MOST_BYTES
answer[1] = cursor
return answer
