-- Taking in: how a job with a record in the history comes into the world, as a member of a batch or of none. Every script
-- that pushes such jobs goes through `take`; `flush` comes once, before that of the batches.
-- include batch
-- include admit
-- include parked
-- include steps
local NO_KEY = {}

local function taking_in(batches, now)
  local intake, known_batches, sound_queues = {taken = 0}, {}, {}
  local facts_of, jobs_of = {}, {}
  count_let_go(batches)

  -- A batch, with what `flush` adds to it; "": jobs that are tracked alone.
  local function batch_of(id)
    if not known_batches[id] then
      facts_of[id] = key('batch_base') .. id
      jobs_of[id] = facts_of[id] .. ':jobs'
      known_batches[id] = {id = id, counts = {}, total = 0, rows = {}, numbers = {}}
    end
    return known_batches[id]
  end

  -- "ABSENT" or "CLOSED" when the batch takes no job of `member`, a job of its own that adds to it, or "".
  function intake.refusal_of(id, member)
    local batch = batch_of(id)
    local known = redis.call('HMGET', facts_of[id], 'state', 'why', 'expires', 'results')
    batch.keeps_results = known[4] == '1'
    if not known[1] then
      return 'ABSENT'
    end
    local may = known[1] == 'open' or (known[1] == 'closed' and redis.call('HEXISTS', jobs_of[id], member) == 1)
    if not may or (known[2] ~= '' and known[2] ~= 'aborted') or now > (tonumber(known[3]) or math.huge) then
      return 'CLOSED'
    end
  end

  -- The name of a job: its record begins with it.
  local function name_of(detail)
    local plain = string.match(detail, '^{"class":"([^"\\]*)"')
    local fine, record = pcall(cjson.decode, plain and '{}' or detail)
    return plain or (fine and type(record) == 'table' and record.class) or ''
  end

  -- The number under which a batch knows the name of a job.
  local function number_of(batch, name)
    if not batch.numbers[name] then
      local number = redis.call('HGET', facts_of[batch.id], 'job:' .. name)
      if not number then
        number = redis.call('HINCRBY', facts_of[batch.id], 'job_names', 1)
        redis.call('HSET', facts_of[batch.id], 'job:' .. name, number)
      end
      batch.numbers[name] = number
    end
    return batch.numbers[name]
  end

  -- An error where a key holds something else: before anybody is a member.
  local function ask_queue(name)
    if not sound_queues[name] then
      redis.call('LLEN', key('queue_prefix') .. name)
      redis.call('SCARD', key('queues'))
      redis.call('ZCARD', key('schedule'))
      sound_queues[name] = true
    end
  end

  local function is_new(batch, jid, status)
    return batch.id == '' or redis.call('HSETNX', jobs_of[batch.id], jid, status) == 1
  end

  local function count(batch, jid, status, detail)
    intake.taken = intake.taken + 1
    batch.total, batch.counts[status] = batch.total + 1, (batch.counts[status] or 0) + 1
    if batch.keeps_results then
      batch.rows[#batch.rows + 1] = number_of(batch, name_of(detail)) .. ' ' .. jid
    end
    batches.record(jid, batch.id, status, '0', '', detail)
  end

  -- What an atomic batch has parked meets its key when the batch is released.
  local function park_in_batch(batch, job, detail, asked)
    local parked_rows, due = facts_of[batch.id] .. ':parked', string.sub(job.when, 7) .. (asked == '' and '' or '\n' .. asked)
    redis.call('LLEN', parked_rows)  -- as ask_queue
    if is_new(batch, job.jid, 'blocked') then
      redis.call('RPUSH', parked_rows,
        string.format('%d %d %d ', #job.jid, #job.queue, #due) .. job.jid .. job.queue .. due .. job.payload)
      count(batch, job.jid, 'blocked', detail)
    end
  end

  local function admit_keyed(job, ask)
    job.key, job.mark, job.needs = ask.key, ask.mark, ask.needs
    return admit(ask, job, now)
  end

  local function take_keyed(batch, job, detail, ask)
    if batch.id ~= '' and redis.call('HEXISTS', jobs_of[batch.id], job.jid) == 1 then
      return 'C'
    end
    job.tracked = (ask.needs or ask.conflict == 'wait') and tracked_later(batch.id, job.jid) or nil
    local answer = admit_keyed(job, ask)
    local status = (job.due ~= '' or ask.debounce) and 'scheduled' or 'enqueued'
    if string.find(answer, '^B') then
      status = 'blocked'
    end
    if not string.find(answer, '^[CB]') then
      step_is_duplicate(batch.id, ask, answer)
    elseif is_new(batch, job.jid, status) then
      count(batch, job.jid, status, detail)
    end
    return answer
  end

  -- Bring a job into the world that has no record. `job` is as `admit` has it, with `when` in place of `due`: "" now, "+s"
  -- in s seconds, else a Unix time. asked: "", or JSON of a job with a key: what is asked of its admission, with key and
  -- mark. The answer of `admit`.
  function intake.push(job, asked)
    job.due = as_due(job.when, now)
    if asked == '' then
      push_admitted(NO_KEY, job, now)
      return 'C'
    end
    return admit_keyed(job, cjson.decode(asked))
  end

  local function take(id, job, detail, asked)
    local batch = batch_of(id)
    if string.sub(job.when, 1, 6) == 'parked' then
      park_in_batch(batch, job, detail, asked)
      return 'C'
    end
    ask_queue(job.queue)
    job.due = as_due(job.when, now)
    if asked ~= '' then
      local ask = cjson.decode(asked)
      local answer = take_keyed(batch, job, detail, ask)
      return answer, ends_call(ask, answer)
    end
    local status = job.due == '' and 'enqueued' or 'scheduled'
    if is_new(batch, job.jid, status) then
      push_admitted(NO_KEY, job, now)
      count(batch, job.jid, status, detail)
    end
    return 'C'
  end

  -- The step of a workflow that a job is; nil for any other.
  local function step_of(asked)
    return string.find(asked, '"step":', 1, true) and cjson.decode(asked).step
  end

  -- The step that a job is to be, where the workflow `id` has another job under that name.
  function intake.other_step(id, jid, asked)
    local step = step_of(asked)
    local before = step and redis.call('HGET', key('batch_base') .. id .. ':names', step)
    return before and string.match(before, '^%S+') ~= jid and step
  end

  -- The steps of the workflow `id` among what a step needs.
  local function steps_before(id, needs)
    local after = {}
    for _, need in ipairs(needs) do
      if need[1] == 'batch:' .. id then
        after[#after + 1] = need[2]
      end
    end
    return after
  end

  -- Bring a job into the world that has a record (`detail`, JSON), unless it is a member of the batch `id` by now, or a
  -- step that there was before. `when` may begin with "parked": then the batch is to be released first. The answer of
  -- `admit`, and whether it ends the call.
  function intake.take(id, job, detail, asked)
    local step = step_of(asked)
    if not step then
      return take(id, job, detail, asked)
    end
    local names = key('batch_base') .. id .. ':names'
    if redis.call('HEXISTS', names, step) == 1 then
      return 'C'
    end
    local answer, ends = take(id, job, detail, asked)
    redis.call('HSET', names, step, job.jid .. ' ' .. name_of(detail))
    local after = steps_before(id, cjson.decode(asked).needs or {})
    if #after > 0 then
      redis.call('HSET', key('batch_base') .. id .. ':after', step, cjson.encode(after))
    end
    return answer, ends
  end

  function intake.flush()
    for id, batch in pairs(known_batches) do
      for first = 1, #batch.rows, 1000 do
        redis.call('RPUSH', facts_of[id] .. ':rows', unpack(batch.rows, first, math.min(first + 999, #batch.rows)))
      end
      if id ~= '' and batch.total > 0 then
        redis.call('HINCRBY', facts_of[id], 'total', batch.total)
        for status, by in pairs(batch.counts) do
          redis.call('HINCRBY', facts_of[id], 'n:' .. status, by)
        end
      end
    end
  end

  return intake
end
