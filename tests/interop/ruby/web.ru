# Sidekiq's own pages, as its wiki tells to run them alone.
require_relative "jobs"
require "sidekiq/web"
require "rack/session/cookie"

use Rack::Session::Cookie, secret: "for tests only, but long enough for a cookie to be signed with: 0123456789abcdef"
run Sidekiq::Web
