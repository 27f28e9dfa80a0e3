package signature

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"
)

const (
	snsTestTopic = "arn:aws:sns:us-west-2:123456789012:MyTopic"
	snsTestURL   = "https://sns.us-west-2.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem"
)

// snsSigner is a key with its certificate in PEM.
func snsSigner(t testing.TB) (*rsa.PrivateKey, string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return key, strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// snsMessage signs a notification by the formula of AWS's page.
func snsMessage(t testing.TB, key *rsa.PrivateKey, change ...string) Message {
	t.Helper()
	f := map[string]string{
		"Type": "Notification", "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "TopicArn": snsTestTopic, "Message": "Hello\nworld",
		"Timestamp": "2026-05-02T00:54:06.655Z", "SignatureVersion": "2", "SigningCertURL": snsTestURL,
	}
	for i := 0; i < len(change); i += 2 {
		f[change[i]] = change[i+1]
	}
	text := "Message\n" + f["Message"] + "\nMessageId\n" + f["MessageId"] + "\nTimestamp\n" + f["Timestamp"] + "\nTopicArn\n" + f["TopicArn"] + "\nType\n" + f["Type"] + "\n"
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	f["Signature"] = base64.StdEncoding.EncodeToString(sig)
	body, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return Message{Method: "POST", Target: "/sns", Header: headers("content-type: text/plain; charset=UTF-8"), Body: body}
}

func TestSNSVerify(t *testing.T) {
	t.Parallel()
	key, certificate := snsSigner(t)
	other, _ := snsSigner(t)
	v := besideVerifier(snsScheme{})
	keys := parseKeys(t, v,
		"arn:aws-cn:sns:cn-north-1:123456789012:MyTopic\nhttps://sns.cn-north-1.amazonaws.com.cn/a.pem\n"+certificate,
		snsTestTopic+"\n"+snsTestURL+"\n"+certificate)
	replaced := func(m Message, from, to string) Message {
		if strings.Count(string(m.Body), from) != 1 {
			t.Fatalf("%s is not there once in %s", from, m.Body)
		}
		m.Body = []byte(strings.Replace(string(m.Body), from, to, 1))
		return m
	}
	good := func(change ...string) Message { return snsMessage(t, key, change...) }
	m := good()
	id := "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324"
	want := Verdict{Reason: ReasonOK, Key: 1, ID: id, IDSigned: true, Type: "Notification", ContentHash: sha256.Sum256([]byte(id)),
		Time: time.Date(2026, 5, 2, 0, 54, 6, 655e6, time.UTC)}
	if got := v.Verify(&m, keys, receivedAt, time.Minute); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	runRows(t, v, keys, []row{
		{"another key", snsMessage(t, other), ReasonBadSignature},
		{"another message", replaced(good(), "Hello", "Goodbye"), ReasonBadSignature},
		{"another topic", good("TopicArn", snsTestTopic+"2"), ReasonBadSignature},
		{"the same topic of another account", good("TopicArn", strings.Replace(snsTestTopic, "123", "321", 1)), ReasonBadSignature},
		{"the next certificate", good("SigningCertURL", strings.Replace(snsTestURL, "0123", "3210", 1)), ReasonKeyUnavailable},
		{"another host", good("SigningCertURL", strings.Replace(snsTestURL, ".com/", ".com.example.com/", 1)), ReasonBadSignature},
		{"another region", good("SigningCertURL", strings.Replace(snsTestURL, "us-west-2", "us-west-1", 1)), ReasonBadSignature},
		{"a user before the host", good("SigningCertURL", strings.Replace(snsTestURL, "sns.", "a@sns.", 1)), ReasonBadSignature},
		{"a port", good("SigningCertURL", strings.Replace(snsTestURL, ".com/", ".com:444/", 1)), ReasonBadSignature},
		{"without TLS", good("SigningCertURL", strings.Replace(snsTestURL, "https", "http", 1)), ReasonBadSignature},
		{"no certificate", good("SigningCertURL", strings.TrimSuffix(snsTestURL, ".pem")), ReasonBadSignature},
		{"a path that goes up", good("SigningCertURL", strings.Replace(snsTestURL, ".com/", ".com/a/../", 1)), ReasonBadSignature},
		{"no signature", replaced(good(), `"Signature":`, `"NoSignature":`), ReasonMissingSignature},
		{"a signature that is no base64", replaced(good(), `"Signature":"`, `"Signature":"*`), ReasonMalformedSignature},
		{"version 3", replaced(good(), `"SignatureVersion":"2"`, `"SignatureVersion":"3"`), ReasonWrongScheme},
		{"version 1", replaced(good(), `"SignatureVersion":"2"`, `"SignatureVersion":"1"`), ReasonBadSignature},
		{"a type of its own", good("Type", "Other"), ReasonMalformedSignature},
		{"an id of two lines", good("MessageId", "a\nTimestamp"), ReasonMalformedSignature},
		{"no id", good("MessageId", ""), ReasonMalformedSignature},
		{"a message that comes twice", replaced(good(), `"Message":`, `"Message":"Goodbye","Message":`), ReasonMalformedSignature},
		{"and in another case", replaced(good(), `"Message":`, `"message":"Goodbye","Message":`), ReasonMalformedSignature},
		{"an unsigned subject", replaced(good(), `"Type":"Notification"`, `"Type":"UnsubscribeConfirmation","Subject":"a"`), ReasonMalformedSignature},
		{"something behind", replaced(good(), `"Type":"Notification"}`, `"Type":"Notification"} {}`), ReasonMalformedSignature},
		{"no JSON", Message{Body: []byte("Message=a")}, ReasonMalformedSignature},
		{"no body", Message{}, ReasonMalformedSignature},
	})
	ended := keys[1]
	ended.Until = receivedAt
	wantReason(t, v.Verify(&m, []Key{ended}, receivedAt, time.Minute), ReasonBadSignature)
	if _, err := v.Sign(&Message{}, keys[1], "", receivedAt); !errors.Is(err, ErrCannotSign) {
		t.Errorf("Sign: %v", err)
	}
	e := v.Explain(&m, keys, receivedAt, time.Minute)
	if len(e.Signed) != 1 || !strings.HasPrefix(string(e.Signed[0]), "Message\nHello\nworld\nMessageId\n22b8") {
		t.Errorf("Explain: %q", e.Signed)
	}
}

func TestSNSKeyRefuses(t *testing.T) {
	t.Parallel()
	_, certificate := snsSigner(t)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, small.Public(), small)
	if err != nil {
		t.Fatal(err)
	}
	v := besideVerifier(snsScheme{})
	for name, secret := range map[string]string{
		"a certificate alone":       certificate,
		"no URL":                    snsTestTopic + "\n" + certificate,
		"a URL of another host":     snsTestTopic + "\nhttps://example.com/a.pem\n" + certificate,
		"a URL of another region":   snsTestTopic + "\nhttps://sns.eu-west-1.amazonaws.com/a.pem\n" + certificate,
		"a subscription":            snsTestTopic + ":c9135db0-26c4-47ec-8998-413945fb5a96\n" + snsTestURL + "\n" + certificate,
		"text behind":               snsTestTopic + "\n" + snsTestURL + "\n" + certificate + "\ntext",
		"text before":               snsTestTopic + "\n" + snsTestURL + "\ntext\n" + certificate,
		"a key for the certificate": snsTestTopic + "\n" + snsTestURL + "\n" + strings.ReplaceAll(certificate, "CERTIFICATE", "PUBLIC KEY"),
		"a broken certificate":      snsTestTopic + "\n" + snsTestURL + "\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"a weak one":                snsTestTopic + "\n" + snsTestURL + "\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: weak})),
		"a long one":                snsTestTopic + "\n" + snsTestURL + "\n" + strings.Repeat(certificate+"\n", 100),
		"a secret":                  testSecret,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := v.ParseKey([]byte(strings.TrimSpace(secret))); !errors.Is(err, ErrKeyForm) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Nothing that a sender can write holds without the service's key, and what is read has one reading.
func FuzzSNS(f *testing.F) {
	key, certificate := snsSigner(f)
	v := besideVerifier(snsScheme{})
	keys := parseKeys(f, v, snsTestTopic+"\n"+snsTestURL+"\n"+certificate)
	m := snsMessage(f, key)
	signed, err := snsBody(m.Body)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(m.Body), `{}`, `{"Type":"Notification"}`, `[]`, `{"a":{"a":[1]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := Message{Body: body}
		if got := v.Verify(&m, keys, receivedAt, time.Minute); got.Reason != ReasonOK {
			return
		}
		fields, err := snsBody(body)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range snsFields["Notification"] {
			if fields[name] != signed[name] {
				t.Errorf("%s is %q, %q was signed", name, fields[name], signed[name])
			}
		}
	})
}
