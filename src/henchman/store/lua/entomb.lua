-- entomb: declare an identity dead, so that nothing it says counts any more and its work can be given back
-- KEYS lease tomb tombs
-- ARGV identity tomb_ms force
-- returns 1 it is dead (or was already), 0 its lease is alive and force is not "1"
-- include base
if ARGV[3] ~= '1' and redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[3], as_text(server_now()), ARGV[1])
return 1
