-- claim: before jobs with a key start: give back their locks of the queue, and take those of running jobs, or let them wait
-- KEYS queues lease tomb (flight queue)*
-- ARGV lease_ms (pair payload jid scope name phases conflict)*
-- returns "LOST" when the identity was buried, "LAPSED" when the lease is gone, else an answer a job: {1, token, latest}
--   it may start: token rises with each claim, latest is a payload whose arguments it takes, or an empty text; {2, jid}
--   that one runs: this one is parked until then, and not in flight any more; {3, jid} the same where conflict is "skip":
--   nothing was changed; {0} not ours any more; a text: the server refused, it is in flight as before. LPOS is the fence.
--   Whoever claims again gets a higher token. The renewal comes first: a full server accepts the writes that follow.
-- include base
-- include keys
-- include locks
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 'LOST'
end
if redis.call('PEXPIRE', KEYS[2], ARGV[1]) == 0 then
  return 'LAPSED'
end

-- In flight until it is parked as a whole: a refusal half-way leaves it there.
local function wait_in_line(pair, payload, jid, await_key)
  local name = string.sub(KEYS[3 + 2 * pair], #key('queue_prefix') + 1)
  local fine, problem = pcall(park, jid, name, '', 'running', payload, await_key)
  if not fine then
    redis.pcall('HDEL', key('parked'), jid)
    error(in_words(problem), 0)
  end
  redis.call('LREM', KEYS[2 + 2 * pair], -1, payload)
end

local function claim(pair, payload, jid, scope, name, phases, conflict)
  if not redis.call('LPOS', KEYS[2 + 2 * pair], payload) then
    return {0}
  end
  if string.find(phases, 'r', 1, true) then
    local holder = lock_holder('r', scope, name)
    if not holder then
      lock_take('r', scope, name, jid)
    elseif holder ~= jid and conflict == 'skip' then
      return {3, holder}
    elseif holder ~= jid then
      wait_in_line(pair, payload, jid, 'r' .. scope .. '\n' .. name)
      return {2, holder}
    end
  end
  if string.find(phases, 'w', 1, true) then
    lock_free('w', scope, name, jid)
  end
  return {1, redis.call('INCR', key('token')), redis.call('HGET', key('latest'), jid) or ''}
end

local answers = {}
for at = 2, #ARGV, 7 do
  local fine, answer = pcall(claim, tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4],
    ARGV[at + 5], ARGV[at + 6])
  answers[#answers + 1] = fine and answer or in_words(answer)
end
return answers
