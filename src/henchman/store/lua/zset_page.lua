-- zset_page: a page of a sorted set from a rank on, as far as its entries have room in one answer
-- KEYS source
-- ARGV first most reverse text score
-- returns {1 if there are more entries behind it, else 0; how many were looked at; {entry, score, …}}: those that hold
--   text (all, if it is empty), and in any case the first, the last, and one that does not hold it. It ends with the
--   entry that reaches 4 MB, but looks at two, if there are so many, so that who begins each page with the last entry of
--   the one before gets on. No scan is used, which may bring a dozen entries at once, and no pattern: to match one against
--   3 MB takes longer than to read them. Where a score is given, first counts from the first entry that has it.
-- include page
local first, text, score = tonumber(ARGV[1]), ARGV[4], ARGV[5]
if score ~= '' then
  local low, high = '-inf', '(' .. score
  if ARGV[3] == '1' then
    low, high = high, '+inf'
  end
  first = first + redis.call('ZCOUNT', KEYS[1], low, high)
end
local page, count = page_of(function(place, many)
  if ARGV[3] == '1' then
    return redis.call('ZREVRANGE', KEYS[1], first + place, first + place + many - 1, 'WITHSCORES')
  end
  return redis.call('ZRANGE', KEYS[1], first + place, first + place + many - 1, 'WITHSCORES')
end, tonumber(ARGV[2]), 2, 2)
local found, other = {}, nil
for at = 1, #page, 2 do
  local holds = text == '' or string.find(page[at], text, 1, true)
  if holds or at == 1 or at == #page - 1 or not other then
    found[#found + 1], found[#found + 2] = page[at], page[at + 1]
  end
  other = other or not holds
end
return {redis.call('ZCARD', KEYS[1]) > first + count and 1 or 0, count, found}
