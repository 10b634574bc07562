package app

import (
	"encoding/json"
	"net/http"
)

// demoApplication is the application that `gatehouse dev` protects: a small payroll
// service without access control. The bouncer decides everything.
func demoApplication() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /employees", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, []demoEmployee{demoEmployees["1"], demoEmployees["2"]})
	})
	mux.HandleFunc("GET /employees/{id}", func(w http.ResponseWriter, r *http.Request) {
		e, ok := demoEmployees[r.PathValue("id")]
		if !ok {
			http.Error(w, `{"error":"no such employee"}`, http.StatusNotFound)
			return
		}
		answer(w, e)
	})
	mux.HandleFunc("POST /employees/{id}/raise", func(w http.ResponseWriter, r *http.Request) {
		answer(w, map[string]any{"id": r.PathValue("id"), "raised": true})
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		answer(w, map[string]any{"service": "payroll demo", "path": r.URL.Path, "you_are": r.Header.Get("X-Auth-Request-User")})
	})
	return mux
}

type demoEmployee struct {
	ID     int    `json:"id"`
	Name   string `json:"name"`
	Email  string `json:"email"`
	SSN    string `json:"ssn"`
	Salary int    `json:"salary"`
}

// The numbers are from ranges that are never issued to people.
var demoEmployees = map[string]demoEmployee{
	"1": {1, "Ada Quill", "ada@payroll.example", "900-12-3456", 98000},
	"2": {2, "Ben Moss", "ben@payroll.example", "900-65-4321", 87000},
}
