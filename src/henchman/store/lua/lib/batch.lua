-- Batches and the record of tracked jobs. KEYS[at] is the base of every batch's keys, then come the base of every queue's
-- key, the set of queue names, the history stream, its size in bytes, whether it is kept, what it dropped
-- (store/keys.py).
-- A job is a member of its batch as long as it stands in the batch's `:jobs`; whoever takes it out of there has ended it,
-- and counts it, once. With `many` the script tells of many jobs: what they have in common is then done once, by `flush`.
local FINAL = {finished = 1, failed = 1, error = 1, cancelled = 1, expired = 1}
local MOST_REASONS = 100
local KEPT = {'', ':dead', ':reasons', ':lanes'}  -- what stays of a batch for a while after it was complete

-- A time as payloads hold it: whole milliseconds, in the digits that Ruby and Python write.
local function as_moment(seconds)
  return (string.gsub(string.gsub(string.format('%.3f', seconds), '0+$', ''), '%.$', '.0'))
end

-- include stream
local function batching(at, many)
  local stream = streaming(at + 3, many)
  local batches = {record = stream.record, tell = stream.tell, said = stream.said, is_full = stream.is_full}
  local deltas, touched = {}, {}  -- with `many`: what is counted when all of a script's jobs were told of

  -- Enqueue a callback, once for each generation of the batch.
  local function call_back(id, which, generation)
    local facts = KEYS[at] .. id
    local told = redis.call('HMGET', facts, 'cb:' .. which .. ':queue', 'cb:' .. which .. ':head', 'cb:' .. which .. ':jid',
      'cb:' .. which .. ':tail')
    if not told[1] or redis.call('HSETNX', facts, 'called:' .. which .. ':' .. generation, '1') == 0 then
      return
    end
    local jid = told[3] .. (generation == '1' and '' or '-g' .. generation)
    redis.call('SADD', KEYS[at + 2], told[1])
    redis.call('LPUSH', KEYS[at + 1] .. told[1],
      told[2] .. jid .. told[4] .. ',"enqueued_at":' .. as_moment(server_now()) .. '}')
  end

  local function count_of(counts, name)
    return tonumber(counts[name] or '0')
  end

  local function as_table(flat)
    local found = {}
    for place = 1, #flat, 2 do
      found[flat[place]] = flat[place + 1]
    end
    return found
  end

  -- Every member was settled: say so, call back, and count as settled in the parent.
  local function complete(id)
    local facts = KEYS[at] .. id
    local known = as_table(redis.call('HGETALL', facts))
    local now, counts, bad = as_text(server_now()), {}, count_of(known, 'bad_children')
    for status in pairs(FINAL) do
      counts[#counts + 1] = '"' .. status .. '":' .. count_of(known, 'n:' .. status)
      bad = bad + (status ~= 'finished' and count_of(known, 'n:' .. status) or 0)
    end
    local why = known.why or ''
    redis.call('HSET', facts, 'state', 'complete', 'completed', now, 'bad', (bad > 0 or why ~= '') and '1' or '0')
    redis.call('ZREM', KEYS[at - 3], 'batch:' .. id)  -- nobody is left to hear that it was cancelled
    batches.tell(id, 'complete', '{"generation":' .. known.generation .. ',"counts":{' .. table.concat(counts, ',') .. '}}')
    call_back(id, 'complete', known.generation)
    if bad == 0 and why == '' then
      call_back(id, 'success', known.generation)
    end
    for _, suffix in ipairs(KEPT) do
      redis.call('EXPIRE', KEYS[at] .. id .. suffix, known.keep)
    end
    local parent = known.parent or ''
    if parent ~= '' and redis.call('HDEL', KEYS[at] .. parent .. ':jobs', 'batch:' .. id) == 1 then
      if bad > 0 or why ~= '' then
        redis.call('HINCRBY', KEYS[at] .. parent, 'bad_children', 1)
      end
      return parent
    end
  end

  -- The batch has lost a member, or was closed: it is complete when nobody is left, and then perhaps its parent too.
  function batches.settled(id)
    for _ = 1, 100 do
      if not id or redis.call('HGET', KEYS[at] .. id, 'state') ~= 'closed' then
        return
      end
      if redis.call('HLEN', KEYS[at] .. id .. ':jobs') > 0 then
        return
      end
      id = complete(id)
    end
  end

  -- A complete batch goes on in its next generation, and so does the one that it is part of.
  function batches.reopen(id)
    for _ = 1, 100 do
      local facts = KEYS[at] .. id
      local known = redis.call('HMGET', facts, 'state', 'parent', 'bad', 'expires')
      if known[1] ~= 'complete' then
        return
      end
      redis.call('HSET', facts, 'state', 'closed', 'completed', '', 'why', '')
      if server_now() > (tonumber(known[4]) or math.huge) then
        redis.call('HSET', facts, 'expires', '')
      end
      for _, suffix in ipairs(KEPT) do
        redis.call('PERSIST', KEYS[at] .. id .. suffix)
      end
      batches.tell(id, 'closed', '{"generation":' .. redis.call('HINCRBY', facts, 'generation', 1) .. '}')
      local parent = known[2] or ''
      if parent == '' or redis.call('EXISTS', KEYS[at] .. parent) == 0 then
        return
      end
      redis.call('HSET', KEYS[at] .. parent .. ':jobs', 'batch:' .. id, 'child')
      if known[3] == '1' then
        redis.call('HINCRBY', KEYS[at] .. parent, 'bad_children', -1)
      end
      id = parent
    end
  end

  local function count_reason(id, status, reason)
    local reasons, name = KEYS[at] .. id .. ':reasons', status .. ' ' .. reason
    if redis.call('HEXISTS', reasons, name) == 1 or redis.call('HLEN', reasons) < MOST_REASONS then
      redis.call('HINCRBY', reasons, name, 1)
    end
  end

  function batches.forget_reasons(id, beginning)
    local reasons = KEYS[at] .. id .. ':reasons'
    for _, name in ipairs(redis.call('HKEYS', reasons)) do
      if string.sub(name, 1, #beginning) == beginning then
        redis.call('HDEL', reasons, name)
      end
    end
  end

  -- [track, batch, jid, status, attempt, identity, detail, reason]: the job is `status` from now on.
  function batches.track(effect)
    local id, jid, status = effect[2], effect[3], effect[4]
    if id ~= '' then
      local facts = KEYS[at] .. id
      local old = redis.call('HGET', KEYS[at] .. id .. ':jobs', jid)
      if not old then
        return  -- settled for good before
      end
      if old == 'working' and status == 'working' then
        return  -- its start was told of before, and nobody read the answer
      end
      if old == 'child' then  -- a batch that is gone without having been complete
        redis.call('HDEL', KEYS[at] .. id .. ':jobs', jid)
        redis.call('HINCRBY', facts, 'bad_children', 1)
        touched[id] = true
        return not many and batches.flush()
      end
      if FINAL[status] then
        redis.call('HDEL', KEYS[at] .. id .. ':jobs', jid)
      elseif old ~= status then
        redis.call('HSET', KEYS[at] .. id .. ':jobs', jid, status)
      end
      if old ~= status then
        local counts = deltas[id] or {}
        counts[old], counts[status] = (counts[old] or 0) - 1, (counts[status] or 0) + 1
        deltas[id] = counts
      end
    end
    batches.record(jid, id, status, effect[5], effect[6], effect[7])
    if id ~= '' and FINAL[status] then
      if status == 'failed' or status == 'error' then
        count_reason(id, status, effect[8])
      end
      if status == 'error' then
        call_back(id, 'death', redis.call('HGET', KEYS[at] .. id, 'generation') or '1')
      end
      touched[id] = true
    end
    if not many then
      batches.flush()
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

  -- What is told of those that are members of the batch, each once; none of them is one afterwards.
  local function taken_out(id, jids, details)
    local jobs, counts, told, lines = KEYS[at] .. id .. ':jobs', deltas[id] or {}, {}, {}
    for first = 1, #jids, 1000 do
      for place, old in ipairs(redis.call('HMGET', jobs, unpack(jids, first, math.min(first + 999, #jids)))) do
        local jid = jids[first + place - 1]
        if old and not told[jid] then  -- else settled before
          told[jid], lines[#lines + 1] = true, jid .. ' ' .. details[first + place - 1]
          counts[old], counts.finished = (counts[old] or 0) - 1, (counts.finished or 0) + 1
        end
      end
      redis.call('HDEL', jobs, unpack(jids, first, math.min(first + 999, #jids)))
    end
    deltas[id], touched[id] = counts, true
    return lines
  end

  local function end_well(head, jids, details)
    local id, attempt, identity = string.match(head, '^(%w*) (%d+) (%S+)$')
    local lines = {}
    if id ~= '' then
      lines = taken_out(id, jids, details)
    else
      for place, jid in ipairs(jids) do
        lines[place] = jid .. ' ' .. details[place]
      end
    end
    if stream.is_kept() then
      stream.write_lines(id, 'finished', attempt, identity, lines)
    end
  end

  local function all_end_well()
    local waiting, problem = ends, nil
    ends = {}
    for head, list in pairs(waiting) do
      local fine, said = pcall(end_well, head, list.jids, list.details)
      problem = problem or (not fine and said)
    end
    return problem
  end

  -- Carry what was told into the counts, and see which batches are complete with it.
  function batches.flush()
    stream.write_bundles()
    local problem = all_end_well()
    for id, counts in pairs(deltas) do
      for status, by in pairs(counts) do
        if by ~= 0 and redis.call('HINCRBY', KEYS[at] .. id, 'n:' .. status, by) == by and FINAL[status] then
          redis.call('HSETNX', KEYS[at] .. id, 'first', as_text(server_now()))
        end
      end
    end
    local ended = touched
    deltas, touched, many = {}, {}, false
    for id in pairs(ended) do
      batches.settled(id)
    end
    stream.flush()
    if problem then
      error(problem, 0)
    end
  end

  return batches
end
