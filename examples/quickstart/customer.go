package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// customerSecret is what the customer and sidehook share.
const customerSecret = "whsec_cXVpY2tzdGFydC1jdXN0b21lci1zZWNyZXQtMzJieXQ="

// customer is the server of somebody who gets our webhooks. It checks each with the official library of Standard
// Webhooks, refuses the first two, and takes what comes then.
type customer struct {
	addr    string
	webhook *standardwebhooks.Webhook

	mu   sync.Mutex // covers all below
	seen []visit
}

// visit is one request that the customer got.
type visit struct {
	id, signature string
	answered      int
	body          string
}

// startCustomer runs a customer on a free port of 127.0.0.1.
func (s *stack) startCustomer() error {
	webhook, err := standardwebhooks.NewWebhook(customerSecret)
	if err != nil {
		return fmt.Errorf("start the customer: %w", err)
	}
	s.customer = &customer{webhook: webhook}
	s.customer.addr, err = s.serve(s.customer)
	return err
}

// serve runs handler on a free port of 127.0.0.1 and returns its address.
func (s *stack) serve(handler http.Handler) (addr string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: startTimeout}
	done := make(chan struct{})
	go func() {
		_ = server.Serve(listener) // ends with Close
		close(done)
	}()
	s.stops = append(s.stops, func() error {
		err := server.Close()
		<-done
		return err
	})
	return listener.Addr().String(), nil
}

func (c *customer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender has gone
	}
	signature := "good"
	if err := c.webhook.Verify(body, r.Header); err != nil {
		signature = err.Error()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := []int{http.StatusInternalServerError, http.StatusNotFound}
	code := http.StatusOK
	if n := len(c.seen); n < len(answers) {
		code = answers[n]
	}
	c.seen = append(c.seen, visit{r.Header.Get("Webhook-Id"), signature, code, string(body)})
	w.WriteHeader(code)
}

// visits returns what the customer has got so far.
func (c *customer) visits() []visit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]visit(nil), c.seen...)
}
