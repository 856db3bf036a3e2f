-- The keys that scripts name themselves; store/keys.py has the same names, and tells what each key holds. Every script
-- that includes this file gets the key of the set of queue names as KEYS[1]. What stands there before `queues` is the
-- beginning of every key of the app; a cluster finds all of them in one place by its tag.
local prefix, names = string.sub(KEYS[1], 1, -#'queues' - 1), nil
local function key(name)
  names = names or {  -- it takes long to make: store/call.py writes each name in place of the call
    queues = 'queues',
    queue_prefix = 'queue:',
    schedule = 'schedule',
    retry = 'retry',
    dead = 'dead',
    paused = 'paused',
    stat_processed = 'stat:processed',
    stat_failed = 'stat:failed',
    iteration = 'it-',
    identities = 'hm:identities',
    leases = 'hm:lease:',
    tombs_of = 'hm:tomb:',
    broken = 'hm:broken',
    cancelled = 'hm:cancelled',
    cancels = 'hm:cancels',
    cancel_log = 'hm:cancel_log',
    deaths = 'hm:deaths',
    charged = 'hm:charged',
    suspects = 'hm:suspects',
    notices = 'hm:notices',
    crons = 'hm:crons',
    cron_ticks = 'hm:cron:ticks',
    cron_declared = 'hm:cron:declared',
    cron_paused = 'hm:cron:paused',
    cron_pauses = 'hm:cron:pauses',
    cron_revision = 'hm:cron:revision',
    cron_running = 'hm:cron:running',
    cron_skipped = 'hm:cron:skipped',
    cron_past = 'hm:cron:past:',
    cron_leader = 'hm:cron:leader',
    cron_seen = 'hm:cron:seen',
    batches = 'hm:batches',
    paused_batches = 'hm:batches:paused',
    paused_kinds = 'hm:paused',
    batch_base = 'hm:batch:',
    history = 'hm:history',
    history_bytes = 'hm:history:bytes',
    history_on = 'hm:history:on',
    history_dropped = 'hm:history:dropped',
    lock = 'hm:lock:',
    scopes = 'hm:scopes',
    once = 'hm:once:',
    latest = 'hm:latest',
    parked = 'hm:parked',
    awaits = 'hm:await:',
    needs = 'hm:needs:',
    parked_until = 'hm:parked:until',
    parked_due = 'hm:parked:due',
    clock = 'hm:clock',
    decide = 'hm:decide',
    releases = 'hm:releases',
    ready = 'hm:ready:',
    doubt = 'hm:doubt',
    token = 'hm:token',
    trimmed = 'hm:trimmed',
    throttle = 'hm:throttle:',
    debounce = 'hm:debounce:',
    lane = 'hm:lane:',
    control_all = 'hm:control',
    limits = 'hm:limits',
    slots = 'hm:slots:',
    limited = 'hm:limited:',
    behind = 'hm:behind',
    rates = 'hm:rate:',
    programs = 'hm:programs',
    ordered_queues = 'hm:ordered',
    ordered = 'hm:ordered:',
    fair_queues = 'hm:fair',
    fair_facts = 'hm:fair:facts:',
    fair_turns = 'hm:fair:turns:',
  }
  return prefix .. names[name]
end

-- A key that an effect names as a whole.
local function own_key(name)
  if type(name) ~= 'string' or string.sub(name, 1, #prefix) ~= prefix then
    error('no key of this app: ' .. tostring(name), 0)
  end
  return name
end
