-- queue_ends: what holds a text at both ends of every queue
-- KEYS queues
-- ARGV text most each
-- returns {more, looked, name, length, index, entry, …}: index from 0 at the newest. Of each queue at most each entries are
--   looked at from either end, of all at most so many that together they are most, and those that have 4 MB; of a queue
--   that is looked at, one at either end in any case. more is 1 when
--   there are entries that were not looked at. A key that holds something else shows nothing.
-- include keys
-- include page
-- include every_queue
local text, most, each = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local MOST_FOUND = 100
local names, found, more, looked, size = every_queue(), {}, 0, 0, 0
each = math.max(math.min(each, math.floor(most / (2 * math.max(#names, 1)))), 5)

local function look(name, length, first, many, step)
  local list = key('queue_prefix') .. name
  local page, count
  page, count, size = page_of(function(place, some)
    if step > 0 then
      return redis.call('LRANGE', list, first + place, math.min(first + place + some, first + many) - 1)
    end
    local turned, last = {}, first - place
    local entries = redis.call('LRANGE', list, math.max(last - some + 1, first - many + 1), last)
    for at = #entries, 1, -1 do
      turned[#turned + 1] = entries[at]
    end
    return turned
  end, many, 1, 1, size)
  looked = looked + count
  for at, entry in ipairs(page) do
    if string.find(entry, text, 1, true) and #found < 4 * MOST_FOUND then
      found[#found + 1], found[#found + 2] = name, length
      found[#found + 1], found[#found + 2] = first + step * (at - 1), entry
    end
  end
  return count
end

for _, name in ipairs(names) do
  local length = redis.pcall('LLEN', key('queue_prefix') .. name)
  length = type(length) == 'number' and length or 0
  local room = looked < most and size < MOST_BYTES
  local next_ones = room and look(name, length, length - 1, math.min(each, length), -1) or 0
  local newest = room and look(name, length, 0, math.min(each, length - next_ones), 1) or 0
  if next_ones + newest < length then
    more = 1
  end
end
return {more, looked, unpack(found)}
