"""Sidekiq's format: payload and arguments, in and out."""
