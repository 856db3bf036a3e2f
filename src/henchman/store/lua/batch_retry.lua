-- batch_retry: push jobs of a batch that gave up once more; a complete batch goes on in its next generation
-- KEYS queues operation doer
-- ARGV batch identity lease_ms slice (name jid old new relock)*
-- returns of each 1 it was pushed, 0 it is not among the dead, 2 another job has its key, so that it stays dead; or
--   "ABSENT". As a slice of an operation (identity is not empty) it is counted there, and the state of the operation comes
--   back where nothing is done: another does it by now (LOST), it is not running, or this slice was done before. The old payload among the dead of the batch is the fence. relock: the effects
--   that take its business key again, and last "await", if it waits once more, see work/waits.py: then new does not
--   tell when it enters its queue. One whose key another job has by now stays dead. An error
--   when a queue refuses one (its key holds something else), which stays with the dead; the others are pushed.
-- include base
-- include keys
-- include batch
-- include needs
-- include kept_out
local id, facts, batches, pushed = ARGV[1], key('batch_base') .. ARGV[1], batching(), {}
if redis.call('EXISTS', facts) == 0 then
  return 'ABSENT'
end
local OPERATION, IDENTITY, SLICE = KEYS[2], ARGV[2], ARGV[4]
if IDENTITY ~= '' then
  if redis.call('GET', KEYS[3]) ~= IDENTITY then
    return 'LOST'
  end
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
  local state = redis.call('HGET', OPERATION, 'state') or 'LOST'
  if state ~= 'running' or redis.call('HGET', OPERATION, 'slice') == SLICE then
    return state
  end
end
local dead, problem, any = facts .. ':dead', nil, false
local function place(name, jid, payload, await)
  if await then
    local missing = needing().missing(await[2])
    if #missing > 0 then
      local job = {jid = jid, queue = name, due = '', payload = payload, tracked = tracked_later(id, jid)}
      needing().park(job, missing, await[3], await[5] > 0 and await[5])
      return 'blocked'
    end
    payload = string.sub(payload, 1, -2) .. ',"enqueued_at":' .. as_moment(server_now()) .. '}'
  end
  redis.call('SADD', KEYS[1], name)
  redis.call('LPUSH', key('queue_prefix') .. name, payload)
  return 'enqueued'
end

redis.call('ZREM', dead, '')  -- no-op write: after a removal a full server accepts the writes that follow
for at = 5, #ARGV, 5 do
  local name, jid, old, new, relock = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  pushed[#pushed + 1] = 0
  if redis.call('ZSCORE', dead, old) and kept_out_by(relock) then
    pushed[#pushed] = 2
  elseif redis.call('ZSCORE', dead, old) then
    local effects = relock ~= '' and cjson.decode(relock) or {}
    local last = effects[#effects]
    local fine, status = pcall(place, name, jid, new, last and last[1] == 'await' and last)
    if fine then
      redis.call('ZREM', dead, old)
      for _, effect in ipairs(effects) do
        if effect[1] == 'step' then
          needing().step(effect[2], effect[3], effect[4])
        elseif effect[1] == 'relock' then
          lock_again(effect[2], effect[3], effect[4], effect[5])
        end
      end
      batches.reopen(id)
      redis.call('HSET', facts .. ':jobs', jid, status)
      redis.call('HDEL', facts .. ':results', jid)
      redis.call('HINCRBY', facts, 'n:error', -1)
      redis.call('HINCRBY', facts, 'n:' .. status, 1)
      batches.record(jid, id, status, '0', '', '{"ending":"retried by hand"}')
      pushed[#pushed], any = 1, true
    else
      problem = redis.error_reply(in_words(status))
      pushed[#pushed] = IDENTITY ~= '' and 2 or 0  -- it stays
    end
  end
end
if any and redis.call('HGET', facts, 'n:error') == '0' then
  batches.forget_reasons(id, 'error ')
end
batches.flush()
if IDENTITY == '' then
  return problem or pushed
end
local names, counts = {[0] = 'gone', 'done', 'stayed'}, {}
for _, status in ipairs(pushed) do
  counts[names[status]] = (counts[names[status]] or 0) + 1
end
for name, count in pairs(counts) do
  redis.call('HINCRBY', OPERATION, name, count)
end
redis.call('HINCRBY', OPERATION, 'looked', #pushed)
if problem or counts.stayed then
  redis.call('HSET', OPERATION, 'reason', string.sub(problem and problem.err or 'another job has its key', 1, 300))
end
redis.call('HSET', OPERATION, 'slice', SLICE, 'at', as_text(server_now()))
return pushed
