-- claim: before jobs with a key or limits start: give back their locks of the queue, take those of running jobs and places, or let them wait
-- KEYS queues lease tomb (flight queue)*
-- ARGV lease_ms (head payload jid name)*
-- returns "LOST" when the identity was buried, "LAPSED" when the lease is gone; a number when all may start and nothing
--   newer is known: the first has that token, each next one the token after it; else an answer a job: {1, token, latest}
--   it may start: token rises with each claim, latest is a payload whose arguments it takes, or an empty text; {2, jid}
--   that one runs: this one is parked until then, and not in flight any more; {3, jid} the same where conflict is "skip":
--   nothing was changed; {0} not ours any more; a text: the server refused, it is in flight as before. The fence is that
--   the payload is in flight. Whoever claims again gets a higher token. The renewal comes first: a full server accepts the
--   writes that follow. All jobs of a scope are looked up and changed together.
--   {4, limit, whose} there is no place for it: it is parked; {5, limit, at} it has its time, and is in the schedule;
--   {6, limit, wait} that would be longer than it wants to wait: nothing was changed; {7, token} it waits in flight, behind
--   jobs of this process that have places of its limits, and may start with that token when one of them ends (its heir,
--   lib/place_ends.lua). Behind the answers {8, pair, payload, token} for each that came from the line to wait so.
--   head: pair, phases (or "-"), conflict, scope, limits and member, each on a line of its own. limits: "", or for how long
--   it waits at most (0: for ever), whether it has its time (1), how many may wait behind, whether jobs of this process
--   have places (1), and JSON, see lib/limits.lua. member: the batch of a
--   tracked job, "-" when it is of none, "" when it is not tracked: its record says how it waits, and that it goes on.
-- include base
-- include keys
-- include locks
-- include parked
-- include leased
local NEWER = 50  -- payloads that may have come to a list behind those that are claimed

local batches
local function made_batches()
  -- include batch
  return batching()
end

local function note_waits(job, status, reason)
  local id = job.head.member ~= '-' and job.head.member or ''
  batches = batches or made_batches()
  batches.track({'track', id, job.jid, status, '0', '', cjson.encode({reason = reason}), ''})
end

-- In flight until it is parked as a whole: a refusal half-way leaves it there.
local function wait_in_line(job, await_key, why, reason)
  local pair, member = job.head.pair, job.head.member
  local name = string.sub(KEYS[3 + 2 * pair], #key('queue_prefix') + 1)
  local tracked = member ~= '' and tracked_later(member ~= '-' and member or '', job.jid)
  local fine, problem = pcall(park, job.jid, name, '', why, job.payload, await_key, tracked or '')
  if not fine then
    redis.pcall('HDEL', key('parked'), job.jid)
    error(in_words(problem), 0)
  end
  redis.call('LREM', KEYS[2 + 2 * pair], -1, job.payload)
  if tracked then
    pcall(note_waits, job, 'blocked', reason)
  end
end

local function wait_for_key(job)
  wait_in_line(job, 'r' .. job.head.scope .. '\n' .. job.name, 'running', 'job ' .. job.holder .. ' runs with the same key')
end

-- Whether a payload is in flight. Of a list that many are claimed of, the newest are read at once.
local claimed_of, newest = {}, {}
local function is_in_flight(pair, payload)
  local flight = KEYS[2 + 2 * pair]
  if claimed_of[pair] > 1 and not newest[pair] then
    newest[pair] = {}
    for _, one in ipairs(redis.call('LRANGE', flight, 0, claimed_of[pair] + NEWER)) do
      newest[pair][one] = true
    end
  end
  return (newest[pair] and newest[pair][payload]) or redis.call('LPOS', flight, payload)
end

-- Those of `jobs` that have a phase (`what`: runs, queued; nothing: any), and that nobody stops.
local function that_are(what, jobs)
  if not jobs.differ and not jobs.stopped then
    return (not what or jobs[1].head[what]) and jobs or {}
  end
  local found = {}
  for _, job in ipairs(jobs) do
    if (not what or job.head[what]) and not job.holder then
      found[#found + 1] = job
    end
  end
  return found
end

-- Each of the fields, up to the last: false where there is none.
local function fields_of(hash, jobs, field)
  local fields = {}
  for place, job in ipairs(jobs) do
    fields[place] = job[field]
  end
  return #fields > 0 and redis.call('HMGET', hash, unpack(fields)) or {}
end

-- The lock of running jobs for those that find it free; the others learn who holds it. Whether there are others.
local function take_running(scope, jobs)
  local locks, holders, free, stopped = key('lock') .. 'r:' .. scope, {}, {}, false
  for place, value in ipairs(fields_of(locks, jobs, 'name')) do
    local job = jobs[place]
    local holder = holders[job.name] or (value and lock_says(value))
    if not holder then
      free[#free + 1], free[#free + 2] = job.name, lock_value(job.jid)
    elseif holder ~= job.jid then
      job.holder, stopped = holder, true
    end
    holders[job.name] = holder or job.jid
  end
  if #free > 0 then
    redis.call('HSET', locks, unpack(free))
    note_scope(scope)
  end
  return stopped
end

local function free_queued(scope, jobs)
  local locks, free = key('lock') .. 'w:' .. scope, {}
  for place, value in ipairs(fields_of(locks, jobs, 'name')) do
    if value and is_held_by(value, jobs[place].jid) then
      free[#free + 1] = jobs[place].name
    end
  end
  if #free > 0 then
    redis.call('HDEL', locks, unpack(free))
  end
end

local answers, first_token = {}, nil
local asked = (#ARGV - 1) / 4
local function claim(scope, jobs)
  jobs.stopped = take_running(scope, that_are('runs', jobs))
  free_queued(scope, that_are('queued', jobs))
  local starts = that_are(nil, jobs)
  local newer = redis.call('EXISTS', key('latest')) == 1 and fields_of(key('latest'), starts, 'jid')
  local token = #starts > 0 and redis.call('INCRBY', key('token'), #starts) - #starts
  if #starts == asked and not newer then
    first_token = token + 1
    return
  end
  newer = newer or {}
  for place, job in ipairs(starts) do
    answers[job.place] = {1, token + place, newer[place] or ''}
  end
  for _, job in ipairs(jobs) do
    if job.holder and job.head.conflict == 'skip' then
      answers[job.place] = {3, job.holder}
    elseif job.holder then
      local fine, problem = pcall(wait_for_key, job)
      answers[job.place] = fine and {2, job.holder} or in_words(problem)
    end
  end
end

local limits_of_call
local function made_limits()
  -- include limits
  return {size = limit_size, judge = limits_judge, note = limits_note, take = limits_take, with_time = with_time, come = come_in_time, reason = limit_reason,
    line = limit_line}
end

-- A job that has its time is in the schedule as a whole, or stays in flight.
local function come_at(job, limit, at, notes)
  limits_of_call.come(limits_of_call.with_time(job.payload, at), at)
  limits_of_call.note(notes)
  redis.call('LREM', KEYS[2 + 2 * job.head.pair], -1, job.payload)
  if job.head.member ~= '' then
    pcall(note_waits, job, 'scheduled', 'its turn under the limit ' .. limit[2])
  end
  return {5, limit[2], as_text(at)}
end

local function wait_for_place(job, limit)
  local head, line = job.head, limits_of_call.line(limit)
  local why = limits_of_call.reason(head.limits_text, head.most, head.has_time)
  wait_in_line(job, line, why, 'no place is free under the limit ' .. limit[2])
  if head.most > 0 then
    redis.pcall('ZADD', key('parked_until'), 'LT', as_text(server_now() + head.most), job.jid)
  end
  return {4, limit[2], limit[3]}
end

-- A job with limits: all that it needs is looked at, and then taken.
local function claim_limited(job)
  local head, jid = job.head, job.jid
  limits_of_call = limits_of_call or made_limits()
  local full, at, notes, tightest = limits_of_call.judge(jid, head.limits, head.has_time)
  if full and full[1] == 'r' then
    job.holder = at
    if head.conflict == 'skip' then
      return {3, at}
    end
    wait_for_key(job)
    return {2, at}
  elseif full then
    return wait_for_place(job, full)
  elseif tightest and head.most > 0 and at - server_now() > head.most then
    return {6, tightest[2], as_text(at - server_now())}
  elseif tightest then
    return come_at(job, tightest, at, notes)
  end
  if head.queued then
    free_queued(head.scope, {job})
  end
  local token = redis.call('INCR', key('token'))
  limits_of_call.take(jid, head.limits, token)
  limits_of_call.note(notes)
  return {1, token, redis.call('HGET', key('latest'), jid) or ''}
end

local drawn = {}
local function made_places()
  limits_of_call = limits_of_call or made_limits()
  -- include claim_places
  return claim_places
end

local MOST_TOGETHER = 500  -- jobs: of each two words are unpacked at most
local by_scope, groups = {}, {}
local by_places, of_places = {}, {}
-- Jobs that are claimed together, below a name.
local function put_together(found, all, name, job)
  local jobs = found[name]
  if not jobs or #jobs >= MOST_TOGETHER then
    jobs = {name = name}
    found[name], all[#all + 1] = jobs, jobs
  end
  jobs[#jobs + 1] = job
  return jobs
end

-- Whether limits are places alone.
local function are_places(limits)
  for _, one in ipairs(limits) do
    if one[1] ~= 'c' then
      return false
    end
  end
  return #limits > 0
end

local heads = {}  -- most jobs that are fetched together have theirs in common
local function head_of(text)
  local pair, phases, conflict, scope, limits, member =
    string.match(text, '^(%d+)\n([%l-]+)\n(%l+)\n([^\n]*)\n([^\n]*)\n(.*)$')
  local head = {pair = tonumber(pair), runs = string.find(phases, 'r', 1, true),
    queued = string.find(phases, 'w', 1, true), conflict = conflict, scope = scope, member = member}
  if limits ~= '' then
    local most, has_time, behind, holds, limits_text = string.match(limits, '^(%S+) (%d) (%d+) (%d) (.*)$')
    head.most, head.has_time, head.limits_text = tonumber(most), has_time == '1', limits_text
    head.behind, head.holds = tonumber(behind), holds == '1'
    head.limits = cjson.decode(limits_text)
    head.places = phases == '-' and are_places(head.limits)
  end
  heads[text] = head
  return head
end
for at = 2, #ARGV, 4 do
  local pair = (heads[ARGV[at]] or head_of(ARGV[at])).pair
  claimed_of[pair] = (claimed_of[pair] or 0) + 1
end
for at = 2, #ARGV, 4 do
  local head, payload = heads[ARGV[at]], ARGV[at + 1]
  local job = {place = (at + 2) / 4, head = head, payload = payload, jid = ARGV[at + 2], name = ARGV[at + 3]}
  local fine, found = true, newest[head.pair] and newest[head.pair][payload]
  if not found then
    fine, found = pcall(is_in_flight, head.pair, payload)
  end
  if fine and found and head.places then
    put_together(by_places, of_places, ARGV[at], job)
  elseif fine and found and head.limits then
    local done, answer = pcall(claim_limited, job)
    answers[job.place] = done and answer or in_words(answer)
  elseif fine and found then
    local jobs = put_together(by_scope, groups, head.scope, job)
    jobs.differ = jobs.differ or jobs[1].head ~= head
  else
    answers[job.place] = fine and {0} or in_words(found)
  end
end
for _, jobs in ipairs(groups) do
  local scope = jobs.name
  if not pcall(claim, scope, jobs) then
    for _, job in ipairs(jobs) do  -- each alone
      job.holder = nil
      local fine, problem = pcall(claim, scope, {job})
      if not fine then
        answers[job.place] = in_words(problem)
      end
    end
  end
end
local claim_places = #of_places > 0 and made_places()
for _, jobs in ipairs(of_places) do
  if not pcall(claim_places, jobs[1].head, jobs) then
    for _, job in ipairs(jobs) do  -- each alone
      local fine, answer = pcall(claim_limited, job)
      answers[job.place] = fine and answer or in_words(answer)
    end
  end
end
if batches then
  pcall(batches.flush)
end
for at, one in ipairs(drawn) do
  answers[asked + at] = one
end
return first_token or answers
