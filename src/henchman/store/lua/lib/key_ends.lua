-- The plain ends of jobs with a key. `finish_key` takes the text of one, '*phases once_for scope\njid key' (work/effects.py:
-- it went well, and nothing else hangs on it), or with '=' for the blank and behind it what is remembered, packed (24
-- bytes, see lib/once.lua), and `free_keys` carries out those of a call together: a lock that names its
-- job, and that nobody waits for, is freed with the others of its hash; any other is left to the effect of its own.
-- include locks
-- include once
local MOST_ENDS = 500  -- of one group: what is unpacked is that long
local key_ends, end_groups = {}, {}

-- false: the text is something else.
local function finish_key(payload, ending, text)
  local head, jid, mark, name = string.match(text, '^%*(%l+ %d+ [^\n]*)\n(%w+)([ =])(.*)$')
  if not head then
    return false
  end
  local packed
  if mark == '=' then
    packed, name = string.sub(name, 1, 24), string.sub(name, 25)
  end
  local ends = key_ends[head]
  if not ends or #ends.jids >= MOST_ENDS then
    ends = {head = head, jids = {}, names = {}, packed = {}, payloads = {}, ending = ending}
    key_ends[head], end_groups[#end_groups + 1] = ends, ends
  end
  local place = #ends.jids + 1
  ends.jids[place], ends.names[place], ends.packed[place] = jid, name, packed
  ends.payloads[place] = payload
  return true
end

local function end_key(kinds_of_effects, phase, once_for, scope, name, jid)
  local kinds = kinds_of_effects()
  if phase == 'r' then
    return kinds.unrun({'unrun', scope, name, jid})
  end
  kinds.unlock({'unlock', phase, scope, name, jid, (phase == 'o' or phase == 'f') and 's' or '', once_for})
end

-- Which of these locks somebody waits for: dependants, where success is remembered. Who waits is parked.
local anybody_waits
local function waited_for(phase, scope, names)
  local await_lines, found = {}, {}
  if anybody_waits == nil then
    anybody_waits = redis.call('EXISTS', key('parked')) == 1
  end
  if not anybody_waits then
    return found
  end
  local beginning = ((phase == 'o' or phase == 'f') and 'n' or phase) .. scope .. '\n'
  for place, name in ipairs(names) do
    await_lines[place] = key('awaits') .. beginning .. name
  end
  if redis.call('EXISTS', unpack(await_lines)) > 0 then
    for place, name in ipairs(names) do
      found[name] = redis.call('EXISTS', await_lines[place]) == 1
    end
  end
  return found
end

local function free_locks(kinds_of_effects, phase, once_for, scope, ends)
  local locks, free, remembers = key('lock') .. phase .. ':' .. scope, {}, phase == 'o' or phase == 'f'
  local waited = waited_for(phase, scope, ends.names)
  for place, value in ipairs(redis.call('HMGET', locks, unpack(ends.names))) do
    local jid, name = ends.jids[place], ends.names[place]
    if value and is_held_by(value, jid) then
      if waited[name] then
        end_key(kinds_of_effects, phase, once_for, scope, name, jid)
      else
        if remembers then
          once_remember(scope, name, once_for, 's', jid, ends.packed[place])
        end
        free[#free + 1] = name
      end
    end
  end
  if #free > 0 then
    redis.call('HDEL', locks, unpack(free))
  end
end

local function free_together(kinds_of_effects, head, ends)
  local phases, once_for, scope = string.match(head, '^(%l+) (%d+) (.*)$')
  local problem
  for phase in string.gmatch(phases, '%l') do
    local done, what = pcall(free_locks, kinds_of_effects, phase, once_for, scope, ends)
    problem = problem or (not done and what)
  end
  if string.find(phases, 'w', 1, true) and redis.call('EXISTS', key('latest')) == 1 then
    redis.call('HDEL', key('latest'), unpack(ends.jids))
  end
  if problem then
    error(problem, 0)
  end
end

-- Where they cannot be freed together each is freed alone, and what fails then is told.
local function free_keys(kinds_of_effects, note)
  for _, ends in ipairs(end_groups) do
    if not pcall(free_together, kinds_of_effects, ends.head, ends) then
      for place, payload in ipairs(ends.payloads) do
        local one = {jids = {ends.jids[place]}, names = {ends.names[place]}, packed = {ends.packed[place]}}
        local done, problem = pcall(free_together, kinds_of_effects, ends.head, one)
        if not done then
          note(payload, ends.ending, '*' .. ends.head .. '\n' .. one.jids[1] .. ' ' .. one.names[1], problem)
        end
      end
    end
  end
end
