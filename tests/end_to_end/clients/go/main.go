// A publisher with confirms on amqp091-go. Says for every message what the client saw, as one line of JSON:
//
//	{"sent": 3, "outcomes": ["AN?"], "returned": 0, "closed": [""], "started_ms": 0, "elapsed_s": 0.1,
//	 "begun_per_100ms": {"17636": 3}, "acked_per_100ms": {"17637": 1}}
//
// One string per connection, one letter per message in the order of publishing: A acked, N nacked, ? no answer. Message ids and
// bodies begin with RUN-CONNECTION-SEQUENCE (both from 0).
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	url         = flag.String("url", "amqp://guest:guest@127.0.0.1:5672/", "where to publish")
	exchange    = flag.String("exchange", "", "exchange")
	key         = flag.String("key", "", "routing key")
	run         = flag.String("run", "go", "first part of every message id")
	count       = flag.Int("count", 0, "messages per connection; 0: until -seconds are over")
	seconds     = flag.Float64("seconds", 0, "how long to publish; 0: until -count is reached")
	until       = flag.String("until", "", "a file; publish until there is one, at least for -seconds")
	rate        = flag.Float64("rate", 0, "messages a second per connection; 0: as fast as possible")
	size        = flag.Int("size", 200, "bytes of a body")
	window      = flag.Int("window", 1000, "unconfirmed messages per connection; 0: no bound")
	connections = flag.Int("connections", 1, "connections")
	every       = flag.Int("every", 0, "every so manieth message goes to -everykey; 0: none")
	everykey    = flag.String("everykey", "", "routing key of every -every'th message")
	mandatory   = flag.Bool("mandatory", false, "publish with the mandatory flag")
	patience    = flag.Float64("patience", 240, "seconds to wait for the last confirms")
)

type publisher struct {
	sync.Mutex
	outcomes []byte
	settled  int
	returned int
	closed   string
	begun    map[string]int
	acked    map[string]int
	room     chan struct{}
}

// slot is the number of the 100 ms that we are in, since 1970.
func slot() string {
	return fmt.Sprint(time.Now().UnixMilli() / 100)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// confirmed notes the broker's answer to the message with this delivery tag.
func (p *publisher) confirmed(confirmation amqp.Confirmation) {
	p.Lock()
	defer p.Unlock()
	letter := byte('N')
	if confirmation.Ack {
		letter = 'A'
		p.acked[slot()]++
	}
	p.outcomes[confirmation.DeliveryTag-1] = letter
	p.settled++
	if p.room != nil {
		<-p.room
	}
}

func (p *publisher) pending() int {
	p.Lock()
	defer p.Unlock()
	return len(p.outcomes) - p.settled
}

func (p *publisher) publish(number int) error {
	connection, err := amqp.DialConfig(*url, amqp.Config{Heartbeat: 60 * time.Second, Locale: "en_US"})
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	confirms := channel.NotifyPublish(make(chan amqp.Confirmation, 65536))
	returns := channel.NotifyReturn(make(chan amqp.Return, 65536))
	closing := connection.NotifyClose(make(chan *amqp.Error, 1))
	gone := make(chan struct{})
	go func() {
		for confirmation := range confirms {
			p.confirmed(confirmation)
		}
	}()
	go func() {
		for range returns {
			p.Lock()
			p.returned++
			p.Unlock()
		}
	}()
	go func() {
		if reason := <-closing; reason != nil {
			p.Lock()
			p.closed = fmt.Sprintf("%d %s", reason.Code, reason.Reason)
			p.Unlock()
			close(gone)
		}
	}()

	padding := bytes.Repeat([]byte{'.'}, *size)
	started := time.Now()
	for sequence := 0; *count == 0 || sequence < *count; sequence++ {
		if *seconds > 0 && time.Since(started).Seconds() >= *seconds && (*until == "" || exists(*until)) {
			break
		}
		if *rate > 0 {
			time.Sleep(time.Until(started.Add(time.Duration(float64(sequence) / *rate * 1e9))))
		}
		if p.room != nil {
			select {
			case p.room <- struct{}{}:
			case <-gone:
				return nil
			}
		}
		id := fmt.Sprintf("%s-%d-%d", *run, number, sequence)
		body := append([]byte(id), padding...)
		if len(body) > *size && len(id) < *size {
			body = body[:*size]
		}
		p.Lock()
		p.outcomes = append(p.outcomes, '?')
		p.begun[slot()]++
		p.Unlock()
		message := amqp.Publishing{MessageId: id, DeliveryMode: amqp.Transient, ContentType: "text/plain", Body: body}
		route := *key
		if *every > 0 && (sequence+1)%*every == 0 {
			route = *everykey
		}
		if err := channel.PublishWithContext(context.Background(), *exchange, route, *mandatory, false, message); err != nil {
			p.Lock()
			if p.closed == "" {
				p.closed = err.Error()
			}
			p.Unlock()
			return nil
		}
	}
	deadline := time.Now().Add(time.Duration(*patience * 1e9))
	for p.pending() > 0 && time.Now().Before(deadline) {
		select {
		case <-gone:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func main() {
	flag.Parse()
	publishers := make([]*publisher, *connections)
	var working sync.WaitGroup
	failed := make(chan error, *connections)
	started := time.Now()
	for number := range publishers {
		p := &publisher{begun: map[string]int{}, acked: map[string]int{}}
		if *window > 0 {
			p.room = make(chan struct{}, *window)
		}
		publishers[number] = p
		working.Add(1)
		go func(number int) {
			defer working.Done()
			if err := p.publish(number); err != nil {
				failed <- err
			}
		}(number)
	}
	working.Wait()
	select {
	case err := <-failed:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
	}
	outcomes, closed, begun, acked, sent, returned := []string{}, []string{}, map[string]int{}, map[string]int{}, 0, 0
	for _, p := range publishers {
		p.Lock()
		outcomes = append(outcomes, string(p.outcomes))
		closed = append(closed, p.closed)
		sent += len(p.outcomes)
		returned += p.returned
		for slot, n := range p.begun {
			begun[slot] += n
		}
		for slot, n := range p.acked {
			acked[slot] += n
		}
		p.Unlock()
	}
	json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"sent": sent, "outcomes": outcomes, "returned": returned, "closed": closed, "started_ms": started.UnixMilli(),
		"elapsed_s": time.Since(started).Seconds(), "begun_per_100ms": begun, "acked_per_100ms": acked,
	})
}
