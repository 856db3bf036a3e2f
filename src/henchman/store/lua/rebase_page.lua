-- rebase_page: a page of a sorted set of times from a score on, upwards or downwards
-- KEYS source
-- ARGV from skip most down noted
-- returns {server's now, how many were seen, score of the last or an empty text, how many of those seen have that score;
--   member, score, …}: the page begins behind `skip` members of the score `from`, and ends with the member that reaches
--   4 MB. Of those seen come only those that hold the text `noted`.
-- include base
-- include page
local down = ARGV[4] == '1'
local first = ARGV[2]
  + redis.call('ZCOUNT', KEYS[1], down and '(' .. ARGV[1] or '-inf', down and '+inf' or '(' .. ARGV[1])
local page, seen = page_of(function(place, many)
  local from, to = first + place, first + place + many - 1
  if down then
    return redis.call('ZREVRANGE', KEYS[1], from, to, 'WITHSCORES')
  end
  return redis.call('ZRANGE', KEYS[1], from, to, 'WITHSCORES')
end, tonumber(ARGV[3]), 1, 2)
local found, ties = {as_text(server_now()), seen, page[#page] or '', 0}, 0
for at = 1, #page, 2 do
  ties = ties + (page[at + 1] == page[#page] and 1 or 0)
  if string.find(page[at], ARGV[5], 1, true) then
    found[#found + 1] = page[at]
    found[#found + 1] = page[at + 1]
  end
end
found[4] = ties
return found
