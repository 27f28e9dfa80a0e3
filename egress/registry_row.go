package egress

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/internal/store"
	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// definitionBucket holds the API's endpoints, id -> StoredEndpoint, and under pausedKey, which is no id, whether sending
// is paused.
var (
	definitionBucket = []byte("outbox_definitions")
	pausedKey        = []byte("!paused")
)

// madeKeyBytes is the length of the secrets that we make: the strength of HMAC-SHA256, and within the 24 to 64 bytes that
// Standard Webhooks asks for.
const madeKeyBytes = 32

// The places of an endpoint's seals, after its id; see Sealer.
const (
	sealedKey     = "key"
	sealedHeaders = "headers"
)

// endpointScheme reads the keys of endpoints: whsec_… and whsk_….
func endpointScheme() *signature.Verifier {
	p, _ := signature.ProviderByName("standard-webhooks") // a test of the table holds it there
	return p.Verifier()
}

// openedSecrets is what is secret of a StoredEndpoint, readable.
type openedSecrets struct {
	keys    []signature.Key
	headers []signature.Field
	// problem says, for a person, why they could not be opened; nothing else is set then.
	problem string
}

// openSecrets opens what row holds sealed. Keys whose time is over are opened too: who signs leaves them out.
func openSecrets(s *Sealer, id string, row *egressv1.StoredEndpoint) openedSecrets {
	var o openedSecrets
	scheme := endpointScheme()
	for _, k := range row.GetKeys() {
		text, err := s.open(k.GetSealed(), id, sealedKey, k.GetId())
		if err != nil {
			return openedSecrets{problem: "its secrets cannot be read: " + err.Error() +
				": put that key back, or make a new secret with `sidehook endpoint rotate --overlap 0s`"}
		}
		key, err := scheme.ParseKey(text)
		if err != nil {
			return openedSecrets{problem: "its secrets cannot be read: " + err.Error()}
		}
		if until := k.GetUntilTime(); until != nil {
			key.Until = until.AsTime()
		}
		o.keys = append(o.keys, key)
	}
	if len(row.GetSpec().GetHeaders()) == 0 {
		return o
	}
	var values egressv1.StoredHeaderValues
	text, err := s.open(row.GetSealedHeaderValues(), headerPlace(id, row.GetSpec())...)
	if err == nil {
		err = proto.Unmarshal(text, &values)
	}
	if err == nil && len(values.GetValues()) != len(row.GetSpec().GetHeaders()) {
		err = ErrSealBroken
	}
	if err != nil {
		return openedSecrets{problem: "the values of its headers cannot be read: " + err.Error() +
			": put that key back, or set them again with `sidehook endpoint update`"}
	}
	for i, h := range row.GetSpec().GetHeaders() {
		o.headers = append(o.headers, signature.Field{Name: h.GetName(), Value: values.GetValues()[i]})
	}
	return o
}

// sealHeaders moves the values of row's headers out of its spec, sealed.
func sealHeaders(s *Sealer, id string, row *egressv1.StoredEndpoint) error {
	var values egressv1.StoredHeaderValues
	for _, h := range row.GetSpec().GetHeaders() {
		values.Values = append(values.Values, h.GetValue())
		h.Value = ""
	}
	row.SealedHeaderValues = nil
	if len(values.GetValues()) == 0 {
		return nil
	}
	plain, err := proto.Marshal(&values)
	if err != nil {
		return fmt.Errorf("marshal headers: %w", err)
	}
	row.SealedHeaderValues = s.seal(plain, headerPlace(id, row.GetSpec())...)
	return nil
}

// headerPlace names the headers too: a value must not come out under another name.
func headerPlace(id string, spec *egressv1.EndpointSpec) []string {
	place := []string{id, sealedHeaders}
	for _, h := range spec.GetHeaders() {
		place = append(place, h.GetName())
	}
	return place
}

// makeKey makes a key for the endpoint id. shown is what the receiver verifies with: nothing but the answer at hand will
// ever hold it, unless it is public.
func makeKey(s *Sealer, id string, kind egressv1.KeyKind, now time.Time) (key *egressv1.StoredKey, shown string, err error) {
	key = &egressv1.StoredKey{Id: rand.Text(), Kind: kind, CreateTime: timeMessage(now)}
	var text string
	switch kind {
	case egressv1.KeyKind_KEY_KIND_HMAC_SHA256:
		raw := make([]byte, madeKeyBytes)
		rand.Read(raw) // never fails
		text = "whsec_" + base64.StdEncoding.EncodeToString(raw)
		shown = text
	case egressv1.KeyKind_KEY_KIND_ED25519:
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, "", fmt.Errorf("make key pair: %w", err)
		}
		text = "whsk_" + base64.StdEncoding.EncodeToString(private)
		shown = publicKeyText(public)
		key.PublicKey = shown
	default:
		return nil, "", fmt.Errorf("%w: key_kind: %d is not a kind of key", ErrSpec, kind)
	}
	key.Sealed = s.seal([]byte(text), id, sealedKey, key.GetId())
	return key, shown, nil
}

func publicKeyText(k ed25519.PublicKey) string { return "whpk_" + base64.StdEncoding.EncodeToString(k) }

// newEntry makes the endpoint of a row as it is used beside the configuration c.
func newEntry(id string, row *egressv1.StoredEndpoint, opened openedSecrets, c ConfigEndpoints) *storedEntry {
	spec := row.GetSpec()
	e := &Endpoint{
		ID:         id,
		Origin:     OriginAPI,
		Tenant:     spec.GetTenant(),
		Filter:     c.Filter,
		EventTypes: spec.GetEventTypes(),
		Keys:       opened.keys,
		Headers:    opened.headers,
		Owner:      spec.GetOwner(),
		Unusable:   opened.problem,
	}
	var err error
	if e.Policy, err = policyFrom(spec.GetPolicy(), c.Policy); err != nil {
		e.Policy, e.Unusable = c.Policy, err.Error()
	}
	if e.Target, err = c.Filter.Check(spec.GetUrl()); err != nil {
		e.Unusable = "its URL is not allowed: " + err.Error()
	}
	return &storedEntry{row: row, opened: opened, endpoint: e}
}

// readDefinitions reads the rows of definitionBucket.
func readDefinitions(s *store.Store) (rows map[string]*egressv1.StoredEndpoint, paused bool, err error) {
	rows = make(map[string]*egressv1.StoredEndpoint)
	err = s.View(func(tx *store.Tx) error {
		c := tx.Cursor(definitionBucket)
		for key, value := c.First(); key != nil; key, value = c.Next() {
			row, p, err := decodeDefinition(key, value)
			if err != nil {
				return corruptRow(err)
			}
			if row != nil {
				rows[string(key)] = row
			}
			paused = paused || p
		}
		return nil
	})
	return rows, paused, err
}

var errDefinition = errors.New("malformed endpoint row")

// decodeDefinition reads a row of definitionBucket: of an endpoint, or whether sending is paused.
func decodeDefinition(key, value []byte) (row *egressv1.StoredEndpoint, paused bool, err error) {
	if string(key) == string(pausedKey) {
		if len(value) != 1 || value[0] > 1 {
			return nil, false, fmt.Errorf("%w: pause of %d bytes", errDefinition, len(value))
		}
		return nil, value[0] == 1, nil
	}
	if !validEndpointID(string(key)) {
		return nil, false, fmt.Errorf("%w: key %q", errDefinition, key)
	}
	row = &egressv1.StoredEndpoint{}
	if err := proto.Unmarshal(value, row); err != nil {
		return nil, false, fmt.Errorf("%w: %w", errDefinition, err)
	}
	if row.GetSpec() == nil || len(row.GetKeys()) == 0 {
		return nil, false, fmt.Errorf("%w: %s has no spec or no key", errDefinition, key)
	}
	return row, false, nil
}

func pausedRow(paused bool) []byte {
	if paused {
		return []byte{1}
	}
	return []byte{0}
}

// encodeDefinition returns row as decodeDefinition reads it.
func encodeDefinition(row *egressv1.StoredEndpoint) ([]byte, error) {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(row)
	if err != nil {
		return nil, fmt.Errorf("marshal endpoint: %w", err)
	}
	return value, nil
}

// write writes rows of definitionBucket in one commit. It does not give up before the store has answered: whoever asked
// for a change must know whether it holds.
func (r *Registry) write(rows ...definitionRow) error {
	op := &definitionOp{rows: rows, done: make(chan error, 1)}
	err := r.cfg.Store.Submit(op, store.Urgent)
	if err == nil {
		err = <-op.done
	}
	return unavailable(err)
}

// definitionRow is a row to write; one without a value is deleted.
type definitionRow struct{ key, value []byte }

// definitionOp writes rows of definitionBucket.
type definitionOp struct {
	rows []definitionRow
	done chan error
}

// Apply implements store.Op.
func (o *definitionOp) Apply(tx *store.Tx) error {
	for _, row := range o.rows {
		var err error
		if row.value == nil {
			err = tx.Delete(definitionBucket, row.key)
		} else {
			err = tx.Put(definitionBucket, row.key, row.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Done implements store.Op.
func (o *definitionOp) Done(err error) { o.done <- err }
