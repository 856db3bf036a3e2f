-- batch_pause: no job of a batch starts any more, until it goes on
-- KEYS queues
-- ARGV batch note
-- returns 1; 0 it was paused already, or was not; "ABSENT" there is none; "COMPLETE" none of its jobs is left. note: JSON,
--   see store/batch_pauses.py; empty: the batch goes on. Workers compare the counter with every fetch, and are told to look.
--   Who was held (batch_hold.lua) goes into its queue: here, or where they are many by the stager, see lib/needs.lua.
-- include base
-- include keys
-- include cancel_log
-- include needs
-- include batch
local ID, NOTE = ARGV[1], ARGV[2]
local facts, changed = key('batch_base') .. ID, nil
local state = redis.call('HGET', facts, 'state')
if not state then
  return 'ABSENT'
elseif NOTE ~= '' and state == 'complete' then
  return 'COMPLETE'
end
redis.call('ZREM', key('cancelled'), '')  -- no-op write: after a removal a full server accepts the writes that follow
if NOTE ~= '' then
  redis.call('SADD', key('paused_batches'), ID)
  changed = redis.call('HSET', facts, 'paused', NOTE)
else
  changed = redis.call('HDEL', facts, 'paused')
  redis.call('SREM', key('paused_batches'), ID)
  local batches = batching()
  count_let_go(batches)
  needing().met('batch:', ID)
  batches.flush()
end
if changed == 1 then
  log_cancel('|')
  redis.call('PUBLISH', key('control_all'), 'news')
end
return changed
