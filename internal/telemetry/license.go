package telemetry

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// License is the last license that the license server named, in an update or an answer.
type License struct {
	CustomerID string     `json:"customer_id,omitempty"`
	Tier       string     `json:"subscription_tier,omitempty"`
	Status     string     `json:"subscription_status,omitempty"`
	TrialEnd   *time.Time `json:"trial_end_date,omitempty"`
	// Effective orders licenses: one with an older date, or with none, does not replace one with a
	// date.
	Effective *time.Time `json:"effective_date,omitempty"`
}

// isSet reports whether the license server has named a license.
func (l License) isSet() bool { return l.Tier != "" || l.Status != "" }

func (l License) tier() string {
	if l.Tier == "" {
		return communityTier
	}
	return l.Tier
}

// merged returns the license that applies after old, when the server has answered l: the newer one.
// It keeps the old customer id if l has none.
func (l License) merged(old License) License {
	newer := old.Effective == nil || l.Effective != nil && !l.Effective.Before(*old.Effective)
	next := old
	if l.isSet() && newer {
		next = l
	}
	next.CustomerID = cmp.Or(l.CustomerID, old.CustomerID)
	return next
}

// The reasons of verdicts, as programs read them.
const (
	reasonNone         = "not_required"
	reasonLicensed     = "licensed"
	reasonTrial        = "trial"
	reasonTrialExpired = "trial_expired"
	reasonNoLicense    = "no_license"
	reasonInactive     = "subscription_inactive"
	reasonNoConnection = "no_connection"
)

// trialWarning is how many days before its end a trial causes a warning.
const trialWarning = 7

// verdict says whether a license allows controls to be promoted to production and enforced there.
type verdict struct {
	allowed bool
	reason  string
	// message says why, for people.
	message string
	// warning says what may soon end the permission; empty: nothing.
	warning string
	// trial says that the license is a trial, which may have ended. expired says that it has.
	trial, expired bool
	// daysLeft is the number of days until the end of a trial, rounded up.
	daysLeft int64
}

// inTrial reports whether a license is a trial.
func (l License) inTrial() bool {
	tier, status := strings.ToLower(l.Tier), strings.ToLower(l.Status)
	if tier == "trial" || slices.Contains([]string{"trial", "trialing", "trial_expired"}, status) {
		return true
	}
	return l.TrialEnd != nil && slices.Contains([]string{"", communityTier, "free"}, tier)
}

// judge returns the verdict on a license at a time. Unknown statuses allow nothing.
func (l License) judge(now time.Time) verdict {
	if !l.isSet() {
		return verdict{reason: reasonNoLicense, message: "the license server has confirmed no license"}
	}
	status := strings.ToLower(l.Status)
	v := verdict{trial: l.inTrial()}
	if v.trial {
		v.expired = slices.Contains([]string{"trial_expired", "expired"}, status) || l.TrialEnd != nil && !l.TrialEnd.After(now)
		if l.TrialEnd != nil {
			v.daysLeft = max(0, int64(math.Ceil(l.TrialEnd.Sub(now).Hours()/24)))
		}
	}
	switch {
	case v.expired && l.TrialEnd != nil:
		v.reason, v.message = reasonTrialExpired, "the trial ended on "+l.TrialEnd.UTC().Format(time.DateOnly)
	case v.expired:
		v.reason, v.message = reasonTrialExpired, "the trial has ended"
	case !slices.Contains([]string{"", "active", "trial", "trialing", "past_due"}, status):
		v.reason, v.message = reasonInactive, fmt.Sprintf("the subscription is %q", l.Status)
	case v.trial:
		v.allowed, v.reason, v.message = true, reasonTrial, "the trial license allows it"
		if l.TrialEnd != nil && v.daysLeft <= trialWarning {
			v.warning = "the trial ends on " + l.TrialEnd.UTC().Format(time.DateOnly)
		}
	default:
		v.allowed, v.reason, v.message = true, reasonLicensed, fmt.Sprintf("the %s license allows it", l.tier())
		if status == "past_due" {
			v.warning = "a payment for the subscription is overdue"
		}
	}
	return v
}

// judge returns the verdict on the license of a state. While the server cannot be reached, its last
// license stays in force. If the server refuses the API key, no license is in force.
func (st state) judge(now time.Time) verdict {
	if st.URL == "" {
		return verdict{allowed: true, reason: reasonNone, message: "no license server is configured, and nothing needs a license"}
	}
	if st.KeyRefused {
		return verdict{reason: reasonNoLicense, message: st.Failure}
	}
	v := st.License.judge(now)
	if st.connected() {
		return v
	}
	switch {
	case !st.License.isSet() && st.Failure != "":
		v.message += ": " + st.Failure
	case v.allowed && v.warning == "":
		v.warning = "the license server cannot be asked: " + st.Failure + "; the last license that it confirmed stays in force"
	}
	return v
}

// LicenseStatus is what the license allows now.
type LicenseStatus struct {
	Connected           bool       `json:"connected" doc:"Whether the license server answered the last call."`
	Tier                string     `json:"tier" doc:"Tier of the subscription; community without one." example:"enterprise"`
	TrialExpired        bool       `json:"trial_expired" doc:"Whether the license is a trial that has ended."`
	TrialEndDate        *time.Time `json:"trial_end_date" doc:"End of the trial; null: the license server named none."`
	TrialDaysRemaining  *int64     `json:"trial_days_remaining" doc:"Days until the end of the trial, rounded up; null outside of a trial."`
	LicenseAdminURL     string     `json:"license_admin_url" doc:"URL of the license server; empty: none."`
	APIKeyConfigured    bool       `json:"api_key_configured" doc:"Whether an API key for it is stored."`
	LastVerification    *time.Time `json:"last_verification" doc:"When the license server last answered; null: never."`
	CanTestPolicies     bool       `json:"can_test_policies" doc:"Whether policies may be tested: without a license server, or while it can be reached."`
	CanPromote          bool       `json:"can_promote_to_production" doc:"Whether policies may be promoted and production may enforce."`
	FeaturesGated       bool       `json:"features_gated" doc:"Whether the license blocks anything now."`
	Warning             *string    `json:"warning" doc:"What needs attention; null: nothing."`
	TestPoliciesMessage string     `json:"test_policies_message" doc:"Why policies may be tested or not."`
	PromoteMessage      string     `json:"promote_message" doc:"Why policies may be promoted or not."`
	PromoteWarning      *string    `json:"promote_warning" doc:"What may soon keep policies from being promoted; null: nothing."`
}

func (st state) status(now time.Time) LicenseStatus {
	v := st.judge(now)
	out := LicenseStatus{
		Connected: st.connected(), Tier: st.License.tier(), TrialExpired: v.expired, TrialEndDate: st.License.TrialEnd, LicenseAdminURL: st.URL,
		APIKeyConfigured: len(st.APIKey) > 0, LastVerification: st.VerifiedAt,
		CanTestPolicies: st.URL == "" || st.connected(), CanPromote: v.allowed, PromoteMessage: v.message, PromoteWarning: textOrNil(v.warning),
	}
	if v.trial && st.License.TrialEnd != nil {
		out.TrialDaysRemaining = &v.daysLeft
	}
	out.TestPoliciesMessage = st.testMessage()
	out.FeaturesGated = !out.CanTestPolicies || !out.CanPromote
	switch {
	case !out.CanTestPolicies:
		out.Warning = textOrNil(st.testMessage())
	case !out.CanPromote:
		out.Warning = textOrNil(v.message)
	default:
		out.Warning = out.PromoteWarning
	}
	return out
}

// testMessage says why policies may be tested or not.
func (st state) testMessage() string {
	switch {
	case st.URL == "":
		return "no license server is configured, and nothing needs a license"
	case st.connected():
		return "the license server is connected"
	case st.Failure == "":
		return "the license server has not been asked yet"
	}
	return "there is no connection to the license server: " + st.Failure
}

func textOrNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
