for role in staff visitor; do
  curl -sS -X POST "$GATEHOUSE_URL/api/v1/decisions/evaluate" -H "X-API-Key: $GATEHOUSE_API_KEY" -H 'Content-Type: application/json' \
    -d "{\"user\":{\"id\":\"ben\",\"roles\":[\"$role\"]},\"action\":{\"name\":\"read\",\"method\":\"GET\"},\"resource\":{\"type\":\"api\",\"path\":\"/portal-orders/7\"}}"
done
