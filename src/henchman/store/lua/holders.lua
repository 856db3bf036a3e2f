-- holders: which processes hold a text in flight, or show it in what they run, and there what holds it
-- KEYS queues processes identities
-- ARGV home run_now run_then flights held text first most
-- returns {more, cut, identity, list, entry, …}: what holds the text with the processes that joined, from the place first on,
--   most of them; with first 0 also with those that only have a record, at most four times as many. list is "" for what a process
--   shows that it runs, else the name of its in-flight list; more is 1 when others joined, cut is 1 when the look ended
--   early: after 16 MB, after a hundred finds, or of those that only have a record. What a process runs stands under home, its identity and run_now or run_then, the names of its
--   in-flight lists under flights and its identity; those that begin with held belong to ordered queues. What it shows
--   is read only where its lists show the text, or cannot tell: it has none, or one is too long. A key that holds
--   something else shows nothing.
-- include base
-- include keys
-- include shown_runs
local MOST_LOOKED, LONGEST, MOST_FOUND = 16 * 1024 * 1024, 1000, 100  -- bytes, entries of a list, answers
local home, run_now, run_then, flights, held, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local first, most, size, cut, found = tonumber(ARGV[7]), tonumber(ARGV[8]), 0, 0, {}

local function look(identity, list, entries)
  local shows = false
  for _, one in ipairs(entries.err and {} or entries) do
    size = size + #one
    if string.find(one, text, 1, true) then
      shows = true
      if #found < 3 * MOST_FOUND then
        found[#found + 1], found[#found + 2], found[#found + 3] = identity, list, one
      else
        cut = 1
      end
    end
  end
  return shows
end

local function show(identity)
  look(identity, '', shown_runs(home .. identity, run_now, run_then))
end

local function hold(identity)
  local lists, shows, tells = redis.pcall('SMEMBERS', own_key(flights .. identity)), false, false
  for _, name in ipairs(lists.err and {} or lists) do
    if string.sub(name, 1, #held) ~= held then
      local entries = redis.pcall('LRANGE', own_key(name), 0, LONGEST - 1)
      shows, tells = look(identity, name, entries) or shows, true
      if #entries == LONGEST then
        shows = true  -- or may
      end
    end
  end
  if shows or not tells then
    show(identity)
  end
end

local function enough()
  cut = size >= MOST_LOOKED and 1 or cut
  return size >= MOST_LOOKED
end

local joined = redis.call('ZRANGE', KEYS[3], first, first + most)
for at = 1, math.min(#joined, most) do
  if enough() then
    break
  end
  hold(joined[at])
end
if first == 0 then
  local known, others = {}, {}
  for _, identity in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    known[identity] = true
  end
  for _, identity in ipairs(redis.call('SMEMBERS', KEYS[2])) do
    others[#others + 1] = not known[identity] and identity or nil
  end
  if #others > 4 * most then
    cut = 1
  end
  for at = 1, math.min(#others, 4 * most) do
    if enough() then
      break
    end
    show(others[at])
  end
end
return {#joined > most and 1 or 0, cut, unpack(found)}
