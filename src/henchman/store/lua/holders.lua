-- holders: which processes show a text in what they run, or hold it in flight
-- KEYS queues processes identities
-- ARGV home run_now run_then flights held text first most
-- returns {more, identity…}: of the processes of the two keys from the place first on, most of them; more is 1 when there
--   are others, or when the look ended early, after 16 MB. What a process runs stands under home, its
--   identity and run_now or run_then, the names of its in-flight lists under flights and its identity; those that begin
--   with held belong to ordered queues. A key that holds something else shows nothing.
-- include base
-- include keys
local MOST_LOOKED, LONGEST = 16 * 1024 * 1024, 1000  -- bytes in all, entries of a list
local home, run_now, run_then, flights, held, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local first, most, size, more = tonumber(ARGV[7]), tonumber(ARGV[8]), 0, 0

local function shows(found)
  for _, one in ipairs(found.err and {} or found) do
    size = size + #one
    if string.find(one, text, 1, true) then
      return true
    end
  end
  return false
end

local function holds(identity)
  if shows(redis.pcall('HVALS', own_key(home .. identity .. run_now))) then
    return true
  end
  if shows(redis.pcall('HVALS', own_key(home .. identity .. run_then))) then
    return true
  end
  local lists = redis.pcall('SMEMBERS', own_key(flights .. identity))
  for _, name in ipairs(lists.err and {} or lists) do
    if string.sub(name, 1, #held) ~= held and shows(redis.pcall('LRANGE', own_key(name), 0, LONGEST - 1)) then
      return true
    end
  end
  return false
end

local seen, known, found = redis.call('SMEMBERS', KEYS[2]), {}, {}
for _, identity in ipairs(seen) do
  known[identity] = true
end
for _, identity in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  if not known[identity] then
    seen[#seen + 1] = identity
  end
end
table.sort(seen)
for at = first + 1, math.min(#seen, first + most) do
  if size >= MOST_LOOKED then
    more = 1
    break
  end
  if holds(seen[at]) then
    found[#found + 1] = seen[at]
  end
end
if #seen > first + most then
  more = 1
end
return {more, unpack(found, 1, math.min(#found, 100))}
