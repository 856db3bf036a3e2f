-- zset_page: a page of a sorted set from a rank on, as far as its entries have room in one answer
-- KEYS source
-- ARGV first most reverse
-- returns {1 if there are more entries behind it, else 0; entry, score, …}. It ends with the entry that reaches 4 MB,
--   but holds two, if there are so many, so that who begins each page with the last entry of the one before gets on.
-- include bytes
local first, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local page, size, count = {0}, 0, 0
while count < most and (size < MOST_BYTES or count < 2) do
  local rank = ARGV[3] == '1' and -first - count - 1 or first + count
  local found = redis.call('ZRANGE', KEYS[1], rank, rank, 'WITHSCORES')
  if #found == 0 then
    return page
  end
  count, size = count + 1, size + #found[1]
  page[2 * count], page[2 * count + 1] = found[1], found[2]
end
page[1] = redis.call('ZCARD', KEYS[1]) > first + count and 1 or 0
return page
