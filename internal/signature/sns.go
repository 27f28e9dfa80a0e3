package signature

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha1" // what SignatureVersion 1 signs; see snsScheme
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// snsScheme is that of Amazon SNS: some fields of the JSON body, signed by a certificate that the service publishes at a
// URL. Every topic of every AWS account is signed by the same certificate, so that a signature alone says nothing of
// who sent: the key of a source is its topic, and with it, if the user wants no others, the certificates that it takes.
//
// The service signs with SHA-1 unless the topic's SignatureVersion is 2. A collision needs texts that end alike, and all
// end with the sender's own topic.
type snsScheme struct{}

// snsKind is the kind of the key: the topic's ARN, then each certificate behind the URL that it was fetched from.
var snsKind = kind{algorithm: "SNS", format: "SNS"}

func (snsScheme) keyKind() kind { return snsKind }

func (snsScheme) needsURL() bool { return false }

// signsTime is false: a message is not signed anew when it is sent again, which can be long after.
func (snsScheme) signsTime() bool { return false }
func (snsScheme) hasType() bool   { return true }

// String describes the scheme as the one of a Spec is described.
func (snsScheme) String() string { return "SNS (key: topic and certificates) in json Signature" }

// snsKey is the topic of a source and the certificates of its region, by their URLs.
type snsKey struct {
	topic        string
	host         string
	certificates map[string]*rsa.PublicKey
}

var (
	snsTopic  = regexp.MustCompile(`^arn:(aws|aws-cn|aws-us-gov):sns:([a-z0-9-]{3,32}):[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?$`)
	errSNSKey = fmt.Errorf("%w: the topic's ARN is wanted, alone, or with the SigningCertURL of its messages and that certificate in PEM below", ErrKeyForm)
)

// Bounds on a key and on what is read of a body, whose known fields are fewer than a dozen.
const (
	maxSNSKeyBytes = 64 << 10
	maxSNSFields   = 32
)

func parseSNSKey(raw []byte) (*snsKey, error) {
	line := func() string {
		l, rest, _ := bytes.Cut(raw, []byte("\n"))
		raw = bytes.TrimLeft(rest, " \t\r\n")
		return string(bytes.TrimSpace(l))
	}
	if raw = bytes.TrimSpace(raw); len(raw) > maxSNSKeyBytes {
		return nil, errSNSKey
	}
	k := &snsKey{topic: line(), certificates: map[string]*rsa.PublicKey{}}
	part := snsTopic.FindStringSubmatch(k.topic)
	if part == nil {
		return nil, errSNSKey
	}
	k.host = "sns." + part[2] + ".amazonaws.com"
	if part[1] == "aws-cn" {
		k.host += ".cn"
	}
	for len(raw) > 0 {
		at := line()
		if !k.publishes(at) {
			return nil, fmt.Errorf("%w; the URL must be https://%s/….pem", errSNSKey, k.host)
		}
		block, rest := pem.Decode(raw)
		if block == nil || block.Type != "CERTIFICATE" || !bytes.HasPrefix(raw, []byte("-----BEGIN")) {
			return nil, errSNSKey
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errSNSKey
		}
		public, ok := c.PublicKey.(*rsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("%w: the certificate's key is not RSA", ErrKeyKind)
		}
		if err := fits(public, RSAPKCS1SHA256); err != nil {
			return nil, err
		}
		k.certificates[at], raw = public, bytes.TrimLeft(rest, " \t\r\n")
	}
	if len(k.certificates) > maxJWKs {
		return nil, errSNSKey
	}
	return k, nil
}

// snsName matches the names that SNS's certificates are for: sns.amazonaws.com, sns-signing.eu-south-1.amazonaws.com,
// sns-cn-north-1.amazonaws.com.cn.
var snsName = regexp.MustCompile(`^sns[a-z0-9-]*(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?$`)

// publishes reports whether a certificate at that URL can be the service's own, in the topic's region: over HTTPS, from
// its host and no other port, user, query or fragment.
func (k *snsKey) publishes(at string) bool {
	u, err := url.Parse(at)
	return err == nil && u.Scheme == "https" && u.Host == k.host && u.User == nil && u.Opaque == "" && !strings.ContainsAny(at, "?#%") &&
		path.Clean(u.Path) == u.Path && strings.HasSuffix(u.Path, ".pem")
}

// snsFields are those that are signed, in their order, by the kind of the message.
var snsFields = map[string][]string{
	"Notification":             {"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"},
	"SubscriptionConfirmation": {"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"},
	"UnsubscribeConfirmation":  {"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"},
}

// SNSSubscription reports whether m, which was verified with k, wants a subscription to k's topic confirmed, and returns the
// URL that confirms it: empty if that is not one of SNS itself, in the topic's region and for that topic.
func (k Key) SNSSubscription(m *Message) (at string, ok bool) {
	if k.m == nil || k.m.sns == nil {
		return "", false
	}
	fields, err := snsBody(m.Body)
	if err != nil || fields["Type"] != "SubscriptionConfirmation" || fields["TopicArn"] != k.m.sns.topic {
		return "", false
	}
	at = fields["SubscribeURL"]
	u, err := url.Parse(at)
	if err != nil || len(at) > 2*maxKeyURL || u.Scheme != "https" || u.Host != k.m.sns.host || u.User != nil || u.Opaque != "" || u.Fragment != "" ||
		u.Path != "/" && u.Path != "" {
		return "", true
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil || q.Get("Action") != "ConfirmSubscription" || q.Get("TopicArn") != k.m.sns.topic || q.Get("Token") != fields["Token"] {
		return "", true
	}
	return at, true
}

func (snsScheme) verify(m *Message, keys []Key, now time.Time, _ time.Duration, trace *Explanation) Verdict {
	refuse := func(reason Reason, why string) Verdict {
		trace.note("%s", why)
		return Verdict{Reason: reason, Key: -1}
	}
	fields, err := snsBody(m.Body)
	if err != nil {
		return refuse(ReasonMalformedSignature, err.Error())
	}
	signed, err := snsSigned(fields)
	switch {
	case fields["Signature"] == "":
		return refuse(ReasonMissingSignature, "json Signature is missing")
	case err != nil:
		return refuse(ReasonMalformedSignature, err.Error())
	}
	signature, ok := decode(nil, fields["Signature"], Base64)
	if !ok || len(signature) > maxSignatureBytes {
		return refuse(ReasonMalformedSignature, "json Signature is no base64")
	}
	algorithm, newHash := crypto.SHA256, sha256.New
	switch fields["SignatureVersion"] {
	case "1":
		algorithm, newHash = crypto.SHA1, sha1.New
	case "2":
	default:
		return refuse(ReasonWrongScheme, "json SignatureVersion is neither 1 nor 2")
	}
	if trace != nil {
		trace.Signed = [][]byte{[]byte(signed)}
	}
	return snsJudge(m, fields, sum(newHash, signed), algorithm, signature, keys, now, trace)
}

func sum(newHash func() hash.Hash, text string) []byte {
	h := newHash()
	_, _ = io.WriteString(h, text)
	return h.Sum(nil)
}

// snsJudge looks for the topic and for the certificate among keys. A certificate of the service that none of them has
// is not the sender's fault: it may be the next one.
func snsJudge(m *Message, fields map[string]string, sum []byte, algorithm crypto.Hash, signature []byte, keys []Key, now time.Time, trace *Explanation) Verdict {
	found, tried := -1, 0
	var unknown KeyRequest
	pinned := false
	for i := range keys {
		k := &keys[i]
		if !k.live(now) || k.m.kind != snsKind || tried == maxKeys || k.m.sns.topic != fields["TopicArn"] {
			continue
		}
		tried++
		at := fields["SigningCertURL"]
		public := crypto.PublicKey(k.m.sns.certificates[at])
		if k.m.sns.certificates[at] == nil {
			if !k.m.sns.publishes(at) {
				continue
			}
			document := m.publishedBy(at)
			if document == nil || len(k.m.sns.certificates) > 0 {
				if unknown.URL = at; len(k.m.sns.certificates) > 0 {
					pinned = true
				}
				continue
			}
			public = document.certificate(now, snsName.MatchString)
		}
		if fits(public, RSAPKCS1SHA256) == nil && checkRSA(public, algorithm, sum, signature) && found < 0 {
			found = i
		}
	}
	trace.note("tried %d keys of the topic %q", tried, fields["TopicArn"])
	switch {
	case found < 0 && unknown.URL != "":
		trace.note("the certificate of %q is not at hand", unknown.URL)
		if pinned {
			unknown = KeyRequest{} // to be fetched by a person
		}
		return Verdict{Reason: ReasonKeyUnavailable, Key: -1, Want: unknown}
	case found < 0:
		return Verdict{Reason: ReasonBadSignature, Key: -1}
	}
	id := fields["MessageId"]
	at, _ := parseTime(fields["Timestamp"], RFC3339)
	return Verdict{Reason: ReasonOK, Key: found, ID: id, IDSigned: true, Type: fields["Type"], Time: at, ContentHash: sha256.Sum256([]byte(id))}
}

// snsBody reads the texts of the outermost object. A name that comes twice, in whatever case, would be read by one of us
// and the app in one way and by the other in another.
func snsBody(body []byte) (map[string]string, error) {
	errBody := errors.New("the body is no JSON object of SNS")
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errBody
	}
	fields, seen := map[string]string{}, map[string]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil || len(seen) == maxSNSFields {
			return nil, errBody
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, errBody
		}
		key, _ := name.(string)
		folded := foldName(key)
		if seen[folded] {
			return nil, fmt.Errorf("json %s came more than once", key)
		}
		seen[folded] = true
		var text string
		if json.Unmarshal(raw, &text) == nil {
			fields[key] = text
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, errBody
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errBody
	}
	return fields, nil
}

// snsSigned puts together what is signed. All but the message is one line, so that there is one way only to read it.
func snsSigned(fields map[string]string) (string, error) {
	names := snsFields[fields["Type"]]
	if names == nil {
		return "", errors.New("json Type is none of SNS")
	}
	var signed strings.Builder
	for _, name := range names {
		value := fields[name]
		if value == "" && name == "Subject" {
			continue
		}
		if value == "" || name != "Message" && strings.ContainsAny(value, "\r\n") {
			return "", fmt.Errorf("json %s is missing, or has several lines", name)
		}
		signed.WriteString(name + "\n" + value + "\n")
	}
	if !slices.Contains(names, "Subject") && fields["Subject"] != "" {
		return "", errors.New("json Subject is not signed here")
	}
	return signed.String(), nil
}
