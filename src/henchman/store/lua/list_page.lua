-- list_page: a page of a list from an index on, as far as its entries have room in one answer
-- KEYS source
-- ARGV first most reverse text
-- returns {length, looked, {index, entry, …}}: how many entries the list has and how many of them were looked at, and
--   those that hold text (all, if it is empty) with their indices from 0. first is an index as LRANGE has it; reverse
--   is "1" to go to the left from there. It ends with the entry that reaches 4 MB, but looks at two, if there are so many.
-- include page
local length, first, most = redis.call('LLEN', KEYS[1]), tonumber(ARGV[1]), tonumber(ARGV[2])
local reverse, text = ARGV[3] == '1', ARGV[4]
if first < 0 then
  first = length + first
end
if first < 0 then  -- it begins before the list does
  most, first = reverse and 0 or most + first, 0
end
local page, count = page_of(function(place, many)
  if not reverse then
    return redis.call('LRANGE', KEYS[1], first + place, first + place + many - 1)
  end
  local last, turned = first - place, {}
  local some = last < 0 and {} or redis.call('LRANGE', KEYS[1], math.max(last - many + 1, 0), last)
  for at = #some, 1, -1 do
    turned[#turned + 1] = some[at]
  end
  return turned
end, most, 2, 1)
local found = {}
for place, entry in ipairs(page) do
  if text == '' or string.find(entry, text, 1, true) then
    found[#found + 1] = reverse and first - place + 1 or first + place - 1
    found[#found + 1] = entry
  end
end
return {length, count, found}
