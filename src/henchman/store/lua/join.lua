-- join: take a lease for an identity and register its in-flight lists, before anything is fetched into them
-- KEYS lease tomb identities flights
-- ARGV lease_ms identity (flight)*
-- returns 1, or "LOST" when the identity was buried. In the lease stands how long it was given for.
-- include base
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 'LOST'
end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[1])
redis.call('ZADD', KEYS[3], as_text(server_now()), ARGV[2])
for i = 3, #ARGV do
  redis.call('SADD', KEYS[4], ARGV[i])
end
return 1
