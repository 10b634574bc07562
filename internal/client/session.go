package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Session is what `gatehouse login` stores for later commands.
type Session struct {
	// URL is the server's address.
	URL string `json:"url"`
	// Token is a JWT, which is sent in Authorization.
	Token string `json:"token"`
	// Username is the name of the person who signed in.
	Username string `json:"username"`
	// ExpiresAt is when the server stops accepting the token.
	ExpiresAt time.Time `json:"expires_at"`
}

// ErrNoSession means that there is no stored session.
var ErrNoSession = errors.New("you are not signed in: run gatehouse login")

// SessionVariable is the environment variable with the path of the session's file.
const SessionVariable = "GATEHOUSE_SESSION"

// SessionFile returns the path of the session's file: that in SessionVariable, or
// gatehouse/session.json below the user's configuration directory.
func SessionFile() (string, error) {
	if path := os.Getenv(SessionVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration directory: %w", err)
	}
	return filepath.Join(dir, "gatehouse", "session.json"), nil
}

// LoadSession reads the session at path. The error is ErrNoSession if there is none. A
// session that has expired or cannot be read is an error, too.
func LoadSession(path string, now time.Time) (Session, error) {
	var s Session
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, ErrNoSession
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil || s.URL == "" || s.Token == "" {
		return Session{}, fmt.Errorf("%s is not a session: remove it and run gatehouse login", path)
	}
	if !now.Before(s.ExpiresAt) {
		return Session{}, fmt.Errorf("the session of %s at %s ended at %s: run gatehouse login", s.Username, s.URL, s.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return s, nil
}

// Save writes the session to path, completely or not at all. Only the owner can read it.
func (s Session) Save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".session-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}

// ForgetSession deletes the session at path. It returns no error if there is none.
func ForgetSession(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
