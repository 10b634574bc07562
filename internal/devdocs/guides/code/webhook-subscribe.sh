curl -sS -X POST "$GATEHOUSE_URL/api/v1/webhooks" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
  -d '{"name":"chat","url":"https://hooks.example.com/gatehouse","events":["policy.deployed","policy.promoted"]}'
