package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/gatehouse-dev/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/internal/client"
)

// loginCommand signs a person in for the commands that need a server.
type loginCommand struct {
	URL           string `env:"GATEHOUSE_URL" default:"http://127.0.0.1:8080" help:"Address of the server."`
	Username      string `default:"admin" help:"Account."`
	PasswordStdin bool   `help:"Read the password from standard input, for scripts."`
	Code          string `env:"GATEHOUSE_CODE" help:"Code of the second factor, or a recovery code; absent: asked for on the terminal if the account has one."`
}

// codeTries is how many codes may be typed before login gives up.
const codeTries = 3

// token is the server's answer to a sign-in.
type token struct {
	AccessToken string `json:"access_token"`
	ExpiresIn   int64  `json:"expires_in"`
}

// Run asks for the password and keeps the session.
func (c *loginCommand) Run(ctx context.Context) error {
	if _, err := client.Base(c.URL); err != nil {
		return &cli.Failure{Code: cli.ExitUsage, Err: err}
	}
	path, err := client.SessionFile()
	if err != nil {
		return err
	}
	password, err := readPassword(c.PasswordStdin)
	if err != nil {
		return &cli.Failure{Code: cli.ExitUsage, Err: err}
	}
	token, err := c.signIn(ctx, password)
	if err != nil {
		return err
	}
	expires := time.Now().Add(time.Duration(token.ExpiresIn) * time.Second)
	if err := (client.Session{URL: c.URL, Token: token.AccessToken, Username: c.Username, ExpiresAt: expires}).Save(path); err != nil {
		return fmt.Errorf("store the session: %w", err)
	}
	fmt.Printf("Signed in to %s as %s until %s. The session is stored in %s.\n", c.URL, c.Username, expires.Format("15:04"), path)
	return nil
}

// signIn sends the password and, for an account with a second factor, a code.
func (c *loginCommand) signIn(ctx context.Context, password string) (token, error) {
	var got token
	server := &client.Client{URL: c.URL, Agent: "gatehouse/" + version, Tries: 1}
	body := map[string]string{"username": c.Username, "password": password}
	if c.Code != "" {
		body["code"] = c.Code
	}
	err := server.Do(ctx, http.MethodPost, "/auth/login", "", body, &got)
	challenge := challengeOf(err)
	if challenge == "" {
		return got, failed(err)
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return got, &cli.Failure{Code: cli.ExitUsage, Err: errors.New("the account has a second factor: pass its code with --code or GATEHOUSE_CODE")}
	}
	typed := bufio.NewReader(io.LimitReader(os.Stdin, 4<<10))
	for try := 1; ; try++ {
		fmt.Fprint(os.Stderr, "Code of your authenticator app, or a recovery code: ")
		code, err := typed.ReadString('\n')
		if err != nil {
			return got, &cli.Failure{Code: cli.ExitUsage, Err: err}
		}
		answer := map[string]string{"challenge": challenge, "code": strings.TrimSpace(code)}
		err = server.Do(ctx, http.MethodPost, "/auth/login/second-factor", "", answer, &got)
		if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Code != "second_factor_invalid" || try == codeTries {
			return got, failed(err)
		}
		fmt.Fprintln(os.Stderr, "The code is wrong, or was used already.")
	}
}

// failed is the failure of a sign-in that the server refused; nil for none.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &cli.Failure{Code: cli.ExitServer, Err: err}
}

// challengeOf is what a server that asks for a second factor wants answered; empty where it
// does not.
func challengeOf(err error) string {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Code != "second_factor_required" {
		return ""
	}
	var asked struct {
		Challenge string `json:"challenge"`
	}
	if json.Unmarshal(refused.Body, &asked) != nil {
		return ""
	}
	return asked.Challenge
}

// readPassword asks on the terminal without showing what is typed, or reads a line.
func readPassword(stdin bool) (string, error) {
	if stdin {
		line, err := bufio.NewReader(io.LimitReader(os.Stdin, 4<<10)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	terminal := int(os.Stdin.Fd())
	restore, err := hideInput(terminal)
	if err != nil {
		return "", errors.New("standard input is not a terminal: pass the password with --password-stdin")
	}
	defer restore()
	fmt.Fprint(os.Stderr, "Password: ")
	password, err := term.ReadPassword(terminal)
	fmt.Fprintln(os.Stderr)
	return string(password), err
}

// hideInput stops a terminal from showing what is typed until restore is called. ReadPassword does so,
// too, but only after the prompt: whoever answers the prompt faster would see the password.
func hideInput(terminal int) (restore func(), err error) {
	before, err := unix.IoctlGetTermios(terminal, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(terminal, unix.TCSETS, &hidden); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(terminal, unix.TCSETS, before) }, nil
}

// logoutCommand ends the session that login began.
type logoutCommand struct{}

// Run ends the session at the server and forgets it here.
func (logoutCommand) Run(ctx context.Context) error {
	path, err := client.SessionFile()
	if err != nil {
		return err
	}
	s, err := client.LoadSession(path, time.Now())
	if errors.Is(err, client.ErrNoSession) {
		fmt.Println("Nobody was signed in.")
		return nil
	}
	if err == nil {
		err = (&client.Client{URL: s.URL, Key: s.Token, Agent: "gatehouse/" + version}).Do(ctx, http.MethodPost, "/auth/logout", "", nil, nil)
	}
	return errors.Join(err, client.ForgetSession(path))
}

// AfterApply fills in what the command line and the environment left out from
// the session of `gatehouse login`. A session counts for its own server alone;
// one that has expired counts for none.
func (r *remote) AfterApply() error { //nolint:unparam // kong calls hooks of this form
	if r.APIKey != "" {
		return nil
	}
	path, err := client.SessionFile()
	if err != nil {
		return nil //nolint:nilerr // without a home directory there is no session
	}
	s, err := client.LoadSession(path, time.Now())
	if err != nil || r.URL != "" && r.URL != s.URL {
		return nil //nolint:nilerr // the command says that it needs a server, if it does
	}
	r.URL, r.APIKey = s.URL, s.Token
	return nil
}
