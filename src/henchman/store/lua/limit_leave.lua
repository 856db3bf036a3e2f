-- limit_leave: who is no job gives its place of a limit back, or those do whose leases have lapsed; who waits goes on
-- KEYS queues
-- ARGV member
-- returns the members that left: lease, limit and whose, each on a line; member "": those whose leases have lapsed
-- include base
-- include keys
-- include effects
local MOST = 100
redis.call('ZREM', key('cancelled'), '')  -- no-op write: after a removal a full server accepts the writes that follow
local leaving = ARGV[1] ~= '' and {ARGV[1]}
  or redis.call('ZRANGEBYSCORE', key('programs'), '-inf', as_text(server_now()), 'LIMIT', 0, MOST)
for _, member in ipairs(leaving) do
  local lease, name, by = string.match(member, '^([^\n]*)\n([^\n]*)\n(.*)$')
  if lease then
    prepare_effects().slot_free(name, by, lease)
  end
  redis.call('ZREM', key('programs'), member)
end
finish_effects()
return leaving
