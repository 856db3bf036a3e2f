-- due: look at what is due in a set, if this process may stage; removes nothing
-- KEYS staging retry schedule clock paused trimmed decide releases parked_until pauses
-- ARGV identity staging_ms most doubtful forward control
-- returns {0, server's now} when another process stages, else {1, server's now, due retries, due scheduled, next, more,
--   gap, step, left, trimmed, decisions, release, overdue}:
--   at most most of each set, which end with the one that reaches 4 MB; more is 1 when others are due. next is the
--   score of the earliest entry that is not due yet, or an empty text. gap: seconds by this clock since the last look of
--   any process, less than 0 when the clock went back; an empty text at the first look. step: how far the clock went with
--   this look, 0 not at all: back by more than STEP, or by forward, which a process has seen that looked before. It is
--   written down with the look, and left tells of the steps with which times have not been moved along yet, see
--   rebase.lua. What was written in the doubtful seconds before this look may be from before the step or after it; an empty
--   text: nobody knows how many they are. decisions: the first entries of decide; release: the first of releases, or an
--   empty text; overdue: parked jobs that have waited as long as they wanted to.
-- Queues that another hand has put into the set of the paused ones, or taken out, are told to all on the channel control;
-- what was noted about a pause goes with it. A pause whose time is over ends with the look.
-- include base
-- include lead
-- include bytes
local STEP = 1  -- seconds, as in kernel/clock.py
local TRIMMED = 100  -- payloads that the dead set had no room for, in one look
local now, most, size, next_score = server_now(), tonumber(ARGV[3]), 0, nil
if not lead(KEYS[1], ARGV[1], ARGV[2]) then
  return {0, as_text(now)}
end
local told = redis.call('HMGET', KEYS[4], 'now', 'left', 'paused')
local gap, left = told[1] and now - told[1], told[2] or ''
local step = ARGV[5] ~= '0' and tonumber(ARGV[5]) or gap and gap < -STEP and gap or 0
redis.call('HSET', KEYS[4], 'now', as_text(now))
if step ~= 0 then
  local since = ARGV[4] == '' and '-inf' or as_text(now - tonumber(ARGV[4]))
  left = left .. as_text(step) .. ' ' .. as_text(now) .. ' ' .. since .. ' 0 - 0\n'
  redis.call('HSET', KEYS[4], 'by', string.format('%.3f', step), 'at', as_text(now), 'left', left)
end
local notes = redis.call('HGETALL', KEYS[10])
for i = 1, #notes, 2 do
  local fine, note = pcall(cjson.decode, notes[i + 1])
  if fine and type(note) == 'table' and type(note['until']) == 'number' and note['until'] <= now then
    redis.call('SREM', KEYS[5], notes[i])
    redis.call('HDEL', KEYS[10], notes[i])
  end
end
local names = redis.call('SMEMBERS', KEYS[5])
table.sort(names)
local paused, known = cjson.encode(names), told[3] or '{}'
if paused ~= known then
  local before = {}
  for _, name in ipairs(cjson.decode(known)) do
    before[name] = 'unpause '
  end
  for _, name in ipairs(names) do
    before[name] = not before[name] and 'pause ' or nil
  end
  for name, verb in pairs(before) do
    redis.call('PUBLISH', ARGV[6], verb .. name)
    if verb == 'unpause ' then
      redis.call('HDEL', KEYS[10], name)
    end
  end
  redis.call('HSET', KEYS[4], 'paused', paused)
end
local found, more = {}, 0
for i = 2, 3 do
  local entries = {}
  local due = redis.call('ZCOUNT', KEYS[i], '-inf', as_text(now))
  while #entries < math.min(due, most) and size < MOST_BYTES do
    local entry = redis.call('ZRANGE', KEYS[i], #entries, #entries)[1]
    entries[#entries + 1] = entry
    size = size + #entry
  end
  more = #entries < due and 1 or more
  found[i] = entries
  local head = redis.call('ZRANGEBYSCORE', KEYS[i], '(' .. as_text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if head[2] and (not next_score or tonumber(head[2]) < tonumber(next_score)) then
    next_score = head[2]
  end
end
local trimmed = {}
while #trimmed < math.min(most, TRIMMED) and size < MOST_BYTES do
  local entry = redis.call('LINDEX', KEYS[6], #trimmed)
  if not entry then
    break
  end
  trimmed[#trimmed + 1] = entry
  size = size + #entry
end
local decisions = {}
while #decisions < math.min(most, TRIMMED) and size < MOST_BYTES do
  local entry = redis.call('LINDEX', KEYS[7], #decisions)
  if not entry then
    break
  end
  decisions[#decisions + 1] = entry
  size = size + #entry
end
local overdue = redis.call('ZRANGEBYSCORE', KEYS[9], '-inf', as_text(now), 'LIMIT', 0, math.min(most, TRIMMED))
return {1, as_text(now), found[2], found[3], next_score or '', more, gap and as_text(gap) or '', as_text(step), left, trimmed,
  decisions, redis.call('LINDEX', KEYS[8], 0) or '', overdue}
