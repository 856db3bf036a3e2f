-- serving: how many processes serve a queue, how many of their slots are busy, and what runs there the longest
-- KEYS queues processes
-- ARGV home run_now run_then within first most (word)*
-- returns {more, ours, serving, alive, free, slots, busy, heard, identity, running}: of the processes from the place first
--   on, most of them. ours: those of Henchman that were heard of within so many seconds; serving: those that name the queue, in one of
--   the ways to write it, words; alive: those of them that were heard of so lately; free: those that take new jobs, with
--   their slots and busy ones; heard: when one that names the queue was heard of last; running: what a process says that
--   it runs, of those without a free slot what it began first. A key that holds something else counts nothing.
-- include base
-- include keys
-- include shown_runs
local home, run_now, run_then, since = ARGV[1], ARGV[2], ARGV[3], server_now() - tonumber(ARGV[4])
local first, most = tonumber(ARGV[5]), tonumber(ARGV[6])
local ours, serving, alive, free, slots, busy, heard = 0, 0, 0, 0, 0, 0, ''
local began, whose, running = nil, '', ''

-- What stands behind a name in a text of JSON, as far as the pattern goes; the name is sought from a place on.
local function after(text, name, pattern, from)
  local last = select(2, string.find(text, name, from, true))
  return last and string.match(text, pattern, last + 1)
end

-- The part of what a process says of itself in which its queues stand; in one without, as names of a table.
local function names_of(info)
  local at = after(info, '"queues":', '^%s*[%[{]()', 1)
  if not at or string.find(info, '^%s*[%]}]', at) then
    return info, ':'
  end
  at = at - 1
  local list = string.sub(info, at, at) == '['
  local ending, last = list and '"]' or '}', at
  repeat  -- a name may begin with a bracket
    last = string.find(info, ending, last + 1, true)
  until not last or string.find(info, '^%s*[,}]', last + #ending) or last + #ending > #info
  last = last or #info
  return string.sub(info, at, last), ''
end

local function names(info)
  local part, colon
  for at = 7, #ARGV do
    if string.find(info, ARGV[at], 1, true) then
      if not part then
        part, colon = names_of(info)
      end
      if string.find(part, ARGV[at] .. colon, 1, true) then
        return true
      end
    end
  end
  return false
end

local function look_longest(identity)
  for _, one in ipairs(shown_runs(home .. identity, run_now, run_then)) do
    local number = '^%s*([%d.]+)'  -- most often it stands at the end
    local at = after(one, '"run_at":', number, math.max(#one - 60, 1)) or after(one, '"run_at":', number, 1)
    at = tonumber(at)
    if at and (not began or at < began) then
      began, whose, running = at, identity, one
    end
  end
end

local function count(identity)
  local facts = redis.pcall('HMGET', own_key(home .. identity), 'info', 'concurrency', 'busy', 'beat', 'quiet')
  local info, beat = facts[1], tonumber(facts[4])
  if facts.err or not info then
    return
  end
  local lives = not beat or beat >= since
  if lives and after(info, '"version":', '^%s*"henchman', 1) then
    ours = ours + 1
  end
  if not names(info) then
    return
  end
  serving = serving + 1
  if beat and beat > (tonumber(heard) or 0) then
    heard = facts[4]
  end
  alive = alive + (lives and 1 or 0)
  if not lives or facts[5] == 'true' then
    return
  end
  local has = tonumber(facts[2]) or tonumber(after(info, '"concurrency":', '^%s*(%d+)', 1)) or 0
  local uses = tonumber(facts[3]) or 0
  free, slots, busy = free + 1, slots + has, busy + uses
  if uses >= has then
    look_longest(identity)
  end
end

local every = redis.call('SCARD', KEYS[2]) > first and redis.call('SMEMBERS', KEYS[2]) or {}
table.sort(every)
for at = first + 1, math.min(#every, first + most) do
  count(every[at])
end
local more = #every > first + most and 1 or 0
return {more, ours, serving, alive, free, slots, busy, heard, whose, running}
