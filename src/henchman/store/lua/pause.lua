-- pause: no job of a batch, of a class or with a tag starts any more, until it goes on
-- KEYS queues
-- ARGV subject note
-- returns 1; 0 it was paused already, or was not; "ABSENT" there is no such batch; "COMPLETE" none of its jobs is left.
--   subject: the id of a batch, "class:<name>" or "tag:<name>". note: JSON, see store/pauses.py; empty: it goes on. Workers
--   compare the counter with every fetch, and are told to look. Who was held (hold.lua) goes into its queue: here, or where
--   they are many by the stager, see lib/needs.lua.
-- include base
-- include keys
-- include cancel_log
-- include needs
-- include batch
local SUBJECT, NOTE = ARGV[1], ARGV[2]
local of_batch = not string.find(SUBJECT, ':', 1, true)
local facts, changed = key('batch_base') .. SUBJECT, nil
local state = of_batch and redis.call('HGET', facts, 'state')
if of_batch and not state then
  return 'ABSENT'
elseif NOTE ~= '' and state == 'complete' then
  return 'COMPLETE'
end
redis.call('ZREM', key('cancelled'), '')  -- no-op write: after a removal a full server accepts the writes that follow
if NOTE ~= '' and of_batch then
  redis.call('SADD', key('paused_batches'), SUBJECT)
  changed = redis.call('HSET', facts, 'paused', NOTE)
elseif NOTE ~= '' then
  changed = redis.call('HSET', key('paused_kinds'), SUBJECT, NOTE)
else
  if of_batch then
    changed = redis.call('HDEL', facts, 'paused')
    redis.call('SREM', key('paused_batches'), SUBJECT)
  else
    changed = redis.call('HDEL', key('paused_kinds'), SUBJECT)
  end
  local batches = batching()
  count_let_go(batches)
  needing().met('batch:', SUBJECT)
  batches.flush()
end
if changed == 1 then
  log_cancel('|')
  redis.call('PUBLISH', key('control_all'), 'news')
end
return changed
