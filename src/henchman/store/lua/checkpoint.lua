-- checkpoint: keep what a running job says of how far it has come
-- KEYS flight checkpoint
-- ARGV payload state keep_s
-- returns 1; 0 when the job is not in flight there any more, and nothing was changed: the late word of a process that
--   lost the job must not take it back to where it was.
if not redis.call('LPOS', KEYS[1], ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
return 1
