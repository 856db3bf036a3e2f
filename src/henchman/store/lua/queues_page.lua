-- queues_page: what holds a text in a stretch of all queues, one behind the other in the order of their names
-- KEYS queues
-- ARGV text first most
-- returns {length of all, looked, name, length, index, entry, …}: from place first on, where the next to run of the first
--   queue has place 0; index from 0 at the newest. At most most entries are looked at, and those that have 4 MB, but two
--   at least; after a hundred finds no more. A key that holds something else shows nothing.
-- include keys
-- include page
-- include every_queue
local text, first, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local MOST_FOUND, MANY = 100, 32
local names, found, total, looked, size, full = every_queue(), {}, 0, 0, 0, false
table.sort(names)

local function look(name, length, from)
  local list, page, count = key('queue_prefix') .. name
  page, count, size = page_of(function(place, some)
    local last, turned = length - 1 - from - place, {}
    local entries = last < 0 and {} or redis.call('LRANGE', list, math.max(last - some + 1, 0), last)
    for at = #entries, 1, -1 do
      turned[#turned + 1] = entries[at]
    end
    return turned
  end, math.min(most - looked, length - from), math.max(2 - looked, 0), 1, size, MANY)
  for at, entry in ipairs(page) do
    if #found >= 4 * MOST_FOUND then
      count, full = at - 1, true
      break
    end
    if string.find(entry, text, 1, true) then
      found[#found + 1], found[#found + 2] = name, length
      found[#found + 1], found[#found + 2] = length - from - at, entry
    end
  end
  looked = looked + count
end

for _, name in ipairs(names) do
  local length = redis.pcall('LLEN', key('queue_prefix') .. name)
  length = type(length) == 'number' and length or 0
  local from = math.max(first + looked - total, 0)
  if from < length and looked < most and not full and (size < MOST_BYTES or looked < 2) then
    look(name, length, from)
  end
  total = total + length
end
return {total, looked, unpack(found)}
