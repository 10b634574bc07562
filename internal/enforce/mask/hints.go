package mask

import (
	"bytes"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/pii"
)

// hints are the categories that a member's name implies for its value, since a surname or a
// diagnosis cannot be recognised by itself. `name` alone is too general.
var hints = func() map[string]pii.Set {
	out := map[string]pii.Set{}
	for kind, names := range map[pii.Kind]string{
		pii.Names: `first_name last_name middle_name full_name given_name family_name surname maiden_name patient_name customer_name
			cardholder cardholder_name contact_name employee_name person_name firstname lastname fullname`,
		pii.Emails: "email e_mail email_address",
		pii.SSN:    "ssn social_security_number social_security socialsecuritynumber ssn_number",
		pii.Cards:  "card_number cardnumber credit_card credit_card_number pan debit_card_number",
		pii.Health: `diagnosis diagnoses medication medications prescription icd icd10 icd_10 icd_code mrn medical_record_number allergies
			symptoms treatment blood_type medical_history condition_name lab_result lab_results disability`,
		pii.Addresses: "street street_address address_line1 address_line2 address_line_1 address_line_2 address1 address2 postal_code zip zip_code zipcode postcode home_address mailing_address",
		pii.Phones:    "phone phone_number mobile mobile_number telephone fax cell_phone phonenumber",
	} {
		for n := range strings.FieldsSeq(names) {
			out[n] = out[n].With(kind)
		}
	}
	return out
}()

// hintOf returns what a member's name implies, in any spelling.
func hintOf(key []byte) pii.Set {
	if h, ok := hints[string(key)]; ok {
		return h
	}
	if bytes.ContainsAny(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") {
		return hints[snake(key)]
	}
	return 0
}

// snake converts cardNumber and card-number to card_number.
func snake(key []byte) string {
	b := make([]byte, 0, len(key)+4)
	for i := range key {
		c := key[i]
		switch {
		case c == '-':
			c = '_'
		case c >= 'A' && c <= 'Z':
			if c |= 0x20; i > 0 && key[i-1] != '_' && key[i-1] >= 'a' {
				b = append(b, '_')
			}
		}
		b = append(b, c)
	}
	return string(b)
}

// fitsHint reports whether a value can be what its member's name implies.
func fitsHint(hint pii.Set, text []byte) (pii.Kind, bool) {
	if hint == 0 || len(text) == 0 {
		return 0, false
	}
	digits := 0
	for _, c := range text {
		if c >= '0' && c <= '9' {
			digits++
		}
	}
	switch {
	case hint.Has(pii.SSN):
		return pii.SSN, digits >= 4
	case hint.Has(pii.Cards):
		return pii.Cards, digits >= 12
	case hint.Has(pii.Phones):
		return pii.Phones, digits >= 5
	case hint.Has(pii.Emails):
		return pii.Emails, strings.Contains(string(text), "@")
	case hint.Has(pii.Health):
		return pii.Health, true
	case hint.Has(pii.Addresses):
		return pii.Addresses, true
	}
	return pii.Names, hint.Has(pii.Names)
}
