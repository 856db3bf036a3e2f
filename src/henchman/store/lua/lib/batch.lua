-- Batches and the record of tracked jobs. `batching()` gives what scripts do with them; `flush` comes once, at the end.
-- A job is a member of its batch as long as it stands in the batch's `:jobs`; the script that takes it out of there has
-- ended it, and counts it, once.
-- include stream
-- include times
local FINAL = {finished = 1, failed = 1, error = 1, cancelled = 1, expired = 1}
local MOST_REASONS = 100
-- What stays of a batch for `keep` seconds after it was complete. Results stay longer, though nobody can read them then:
-- the auditor unlinks them. The server itself would free very many of them at once, in front of everybody.
local STAYS = {'', ':dead', ':reasons', ':lanes', ':rows', ':steps', ':names', ':after', ':results'}
local UNLINKED_WITHIN = 3600

local function batching()
  local base, stream = key('batch_base'), streaming()
  local batches = {record = stream.record, record_batch = stream.record_batch, said = stream.said,
    is_full = stream.is_full}
  local changes, touched = {}, {}  -- what `flush` adds to the counts of each batch; the batches that lost members

  -- Enqueue a callback, once for each generation of the batch.
  local function call_back(id, which, generation)
    local facts, callback = base .. id, 'cb:' .. which
    local known = redis.call('HMGET', facts, callback .. ':queue', callback .. ':head', callback .. ':jid', callback .. ':tail')
    local queue, head, jid, tail = known[1], known[2], known[3], known[4]
    if not queue or redis.call('HSETNX', facts, 'called:' .. which .. ':' .. generation, '1') == 0 then
      return
    end
    jid = jid .. (generation == '1' and '' or '-g' .. generation)
    local payload = head .. jid .. tail .. ',"enqueued_at":' .. as_moment(server_now()) .. '}'
    redis.call('SADD', key('queues'), queue)
    local pushed = redis.pcall('LPUSH', key('queue_prefix') .. queue, payload)
    if type(pushed) == 'table' then  -- the batch, and the one that it is part of, are complete all the same
      local note = {unit = payload, ending = 'called back', effects = which, error = in_words(pushed)}
      redis.pcall('LPUSH', key('broken'), cjson.encode(note))
      redis.pcall('LTRIM', key('broken'), 0, 999)
    end
  end

  local function as_table(flat)
    local found = {}
    for place = 1, #flat, 2 do
      found[flat[place]] = flat[place + 1]
    end
    return found
  end

  -- Every member is settled: record it, call back, and count as settled in the parent; the parent, if it lost a member.
  local function complete(id)
    local facts = base .. id
    local known = as_table(redis.call('HGETALL', facts))
    local counts, bad = {}, tonumber(known.bad_children or '0')
    for status in pairs(FINAL) do
      local count = tonumber(known['n:' .. status] or '0')
      counts[#counts + 1] = '"' .. status .. '":' .. count
      bad = bad + (status ~= 'finished' and count or 0)
    end
    local well = bad == 0 and (known.why or '') == ''
    redis.call('HSET', facts, 'state', 'complete', 'completed', as_text(server_now()), 'bad', well and '0' or '1')
    redis.call('ZREM', key('cancelled'), 'batch:' .. id)  -- no job is left that the mark would stop
    if known.paused then
      redis.call('HDEL', facts, 'paused')
      redis.call('SREM', key('paused_batches'), id)
    end
    batches.record_batch(id, 'complete',
      '{"generation":' .. known.generation .. ',"counts":{' .. table.concat(counts, ',') .. '}}')
    call_back(id, 'complete', known.generation)
    if well then
      call_back(id, 'success', known.generation)
    end
    for _, suffix in ipairs(STAYS) do
      redis.call('EXPIRE', facts .. suffix, known.keep + (suffix == ':results' and UNLINKED_WITHIN or 0))
    end
    local parent = known.parent or ''
    if parent ~= '' and redis.call('HDEL', base .. parent .. ':jobs', 'batch:' .. id) == 1 then
      if not well then
        redis.call('HINCRBY', base .. parent, 'bad_children', 1)
      end
      return parent
    end
  end

  -- The batch has lost a member, or was closed: it is complete when no member is left, and then perhaps its parent too.
  function batches.complete_if_empty(id)
    for _ = 1, 100 do
      if not id or redis.call('HGET', base .. id, 'state') ~= 'closed' or redis.call('HLEN', base .. id .. ':jobs') > 0 then
        return
      end
      id = complete(id)
    end
  end

  -- A complete batch goes on in its next generation, and so does the one that it is part of.
  function batches.reopen(id)
    for _ = 1, 100 do
      local facts = base .. id
      local known = redis.call('HMGET', facts, 'state', 'parent', 'bad', 'expires')
      local state, parent, bad, expires = known[1], known[2] or '', known[3], known[4]
      if state ~= 'complete' then
        return
      end
      redis.call('HSET', facts, 'state', 'closed', 'completed', '', 'why', '')
      if server_now() > (tonumber(expires) or math.huge) then
        redis.call('HSET', facts, 'expires', '')
      end
      for _, suffix in ipairs(STAYS) do
        redis.call('PERSIST', facts .. suffix)
      end
      batches.record_batch(id, 'closed', '{"generation":' .. redis.call('HINCRBY', facts, 'generation', 1) .. '}')
      if parent == '' or redis.call('EXISTS', base .. parent) == 0 then
        return
      end
      redis.call('HSET', base .. parent .. ':jobs', 'batch:' .. id, 'child')
      if bad == '1' then
        redis.call('HINCRBY', base .. parent, 'bad_children', -1)
      end
      id = parent
    end
  end

  local function count_reason(id, status, reason)
    local reasons, name = base .. id .. ':reasons', status .. ' ' .. reason
    if redis.call('HEXISTS', reasons, name) == 1 or redis.call('HLEN', reasons) < MOST_REASONS then
      redis.call('HINCRBY', reasons, name, 1)
    end
  end

  function batches.forget_reasons(id, beginning)
    local reasons = base .. id .. ':reasons'
    for _, name in ipairs(redis.call('HKEYS', reasons)) do
      if string.sub(name, 1, #beginning) == beginning then
        redis.call('HDEL', reasons, name)
      end
    end
  end

  -- A member goes from one status to another. false: it was settled before, or the record is a second one of its start.
  local function count_status_change(id, jid, status)
    local members = base .. id .. ':jobs'
    local old = redis.call('HGET', members, jid)
    if not old or (old == 'working' and status == 'working') then
      return false
    end
    if old == 'child' then  -- a batch that is gone without having been complete
      redis.call('HDEL', members, jid)
      redis.call('HINCRBY', base .. id, 'bad_children', 1)
      touched[id] = true
      return false
    end
    if FINAL[status] then
      redis.call('HDEL', members, jid)
    elseif old ~= status then
      redis.call('HSET', members, jid, status)
    end
    if old ~= status then
      local counts = changes[id] or {}
      counts[old], counts[status] = (counts[old] or 0) - 1, (counts[status] or 0) + 1
      changes[id] = counts
    end
    return true
  end

  -- [track, batch, jid, status, attempt, identity, detail, reason]: the job is `status` from now on.
  function batches.track(effect)
    local id, jid, status = effect[2], effect[3], effect[4]
    if id ~= '' and not count_status_change(id, jid, status) then
      return
    end
    batches.record(jid, id, status, effect[5], effect[6], effect[7])
    if id ~= '' and FINAL[status] then
      if status == 'failed' or status == 'error' then
        count_reason(id, status, effect[8])
      end
      if status == 'error' then
        call_back(id, 'death', redis.call('HGET', base .. id, 'generation') or '1')
      end
      touched[id] = true
    end
  end

  -- [step_result, batch, jid, text]: what a batch keeps of a member that ends now, see work/effects.py. Who was settled
  -- before keeps what was written then.
  function batches.step_result(effect)
    local facts = base .. effect[2]
    if redis.call('HEXISTS', facts .. ':jobs', effect[3]) == 1 then
      redis.call('HSET', facts .. ':results', effect[3], effect[4])
    end
  end

  -- What a batch keeps of a member that never ran.
  function batches.no_result(id, jid, why)
    if redis.call('HGET', base .. id, 'results') == '1' then
      local said = {status = 'cancelled', message = why}
      batches.step_result({'step_result', id, jid, '!' .. cjson.encode(said)})
    end
  end

  -- A job that was to be a member turns out to be none.
  function batches.withdraw(id, jid, reason)
    local members = base .. id .. ':jobs'
    local old = redis.call('HGET', members, jid)
    if old then
      batches.no_result(id, jid, reason)
      redis.call('HDEL', members, jid)
      redis.call('HINCRBY', base .. id, 'total', -1)
      local counts = changes[id] or {}
      counts[old] = (counts[old] or 0) - 1
      changes[id], touched[id] = counts, true
      batches.record(jid, id, 'cancelled', '0', '', '{"ending":"duplicate","reason":' .. cjson.encode(reason) .. '}')
    end
  end

  -- '+batch attempt identity jid detail', the plain end of a run that went well, waits for others of its batch; false:
  -- the text is something else.
  local ends = {}
  function batches.finish(text)
    local head, jid, detail = string.match(text, '^%+(%w* %d+ %S+) (%w+) ([^\n]+)$')
    if not head then
      return false
    end
    local list = ends[head]
    if not list then
      list = {jids = {}, details = {}}
      ends[head] = list
    end
    local jids, details = list.jids, list.details
    jids[#jids + 1], details[#details + 1] = jid, detail
    return true
  end

  -- Take members out of their batch, each once; the lines of their records.
  local function count_as_finished(id, jids, details)
    local members, counts, seen, lines = base .. id .. ':jobs', changes[id] or {}, {}, {}
    for first = 1, #jids, 1000 do
      for place, old in ipairs(redis.call('HMGET', members, unpack(jids, first, math.min(first + 999, #jids)))) do
        local jid = jids[first + place - 1]
        if old and not seen[jid] then  -- else settled before
          seen[jid], lines[#lines + 1] = true, jid .. ' ' .. details[first + place - 1]
          counts[old], counts.finished = (counts[old] or 0) - 1, (counts.finished or 0) + 1
        end
      end
      redis.call('HDEL', members, unpack(jids, first, math.min(first + 999, #jids)))
    end
    changes[id], touched[id] = counts, true
    return lines
  end

  local function record_finished(head, jids, details)
    local id, attempt, identity = string.match(head, '^(%w*) (%d+) (%S+)$')
    local lines = {}
    if id ~= '' then
      lines = count_as_finished(id, jids, details)
    else
      for place, jid in ipairs(jids) do
        lines[place] = jid .. ' ' .. details[place]
      end
    end
    if stream.is_kept() then
      stream.write_lines(id, 'finished', attempt, identity, lines)
    end
  end

  -- Carry everything into the counts, and see which batches are complete with it. The first error comes last.
  function batches.flush()
    local problem
    stream.write_waiting()
    for head, list in pairs(ends) do
      local fine, message = pcall(record_finished, head, list.jids, list.details)
      problem = problem or (not fine and message)
    end
    for id, counts in pairs(changes) do
      for status, by in pairs(counts) do
        if by ~= 0 and redis.call('HINCRBY', base .. id, 'n:' .. status, by) == by and FINAL[status] then
          redis.call('HSETNX', base .. id, 'first', as_text(server_now()))
        end
      end
    end
    for id in pairs(touched) do
      batches.complete_if_empty(id)
    end
    stream.flush()
    if problem then
      error(problem, 0)
    end
  end

  return batches
end
