export GATEHOUSE_BOUNCER_TOKEN=gh_bouncer_…
export GATEHOUSE_BOUNCER_LISTEN=0.0.0.0:8080
export GATEHOUSE_BOUNCER_TRUSTED_PROXIES=10.0.0.5   # the gateway, and nobody else
gatehouse bouncer
